// Measures the cost of a checkpoint during training: how long copying holds a block's lock, the
// longest push and read of a block, and the throughput, with and without a shard being written.
// Uses one server's job in this process, without a network. The shard is written to a real disk.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/text_format.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/check.h"
#include "torchps/common/clock.h"
#include "torchps/job/job_spec.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/server/job/job_directory.h"
#include "torchps/storage/file_system.h"

ABSL_FLAG(int, mib, 1024, "MiB of state: values and optimizer arrays");
ABSL_FLAG(std::string, optimizer, "adam {}", "optimizer in text format");
ABSL_FLAG(int, arrays, 3, "arrays of that optimizer, the values included");
ABSL_FLAG(std::string, dir, "/tmp/torchps_checkpoint_pause", "directory for the shards");
ABSL_FLAG(int, shards, 5, "number of shards to write");
ABSL_FLAG(double, seconds, 3, "seconds of pushes and reads without a shard");

namespace torchps {
namespace {

HelloRequest MakeHello(int64_t elements) {
  JobSpec spec;
  TPS_CHECK(google::protobuf::TextFormat::ParseFromString(
                absl::StrCat("workers: 1 model { name: 'bench' } optimizer { ",
                             absl::GetFlag(FLAGS_optimizer), " learning_rate: 0.001 } ",
                             "consistency { mode: ASYNC staleness_bound: -1 }"),
                &spec),
            "--optimizer cannot be read");
  const auto normal = NormalizeJobSpec(spec);
  TPS_CHECK(normal.ok(), "--optimizer is not valid");
  HelloRequest hello;
  hello.set_protocol_version(kProtocolVersion);
  *hello.mutable_job() = *normal;
  SegmentProto* const weights = hello.mutable_layout()->add_segment();
  weights->set_name("w");
  weights->add_shape(elements);
  weights->set_group(-1);
  hello.set_incarnation(1);
  hello.set_server_count(1);
  hello.set_job_id(1);
  return hello;
}

// Number of operations, and the longest one.
struct Figures {
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> longest_us{0};

  void Add(absl::Duration took) {
    ++count;
    longest_us = std::max(longest_us.load(), absl::ToInt64Microseconds(took));
  }
  void Clear() {
    count = 0;
    longest_us = 0;
  }
};

void Print(const char* what, absl::Duration took, const Figures& pushes, const Figures& reads) {
  const double seconds = absl::ToDoubleSeconds(took);
  std::printf(
      "%-14s %8.2f %10.0f %12.2f %10.0f %12.2f", what, seconds,
      static_cast<double>(pushes.count) / seconds, static_cast<double>(pushes.longest_us) / 1e3,
      static_cast<double>(reads.count) / seconds, static_cast<double>(reads.longest_us) / 1e3);
}

int Run() {
  const SteadyClock clock;
  const auto files = MakePosixFileSystem();
  JobDirectory::Options options;
  options.files = files.get();
  options.clock = &clock;
  options.path = absl::StrCat(absl::GetFlag(FLAGS_dir), "/", getpid());
  const CheckpointDirectory names(files.get(), options.path);
  JobDirectory directory(std::move(options));
  const int64_t elements =
      (int64_t{absl::GetFlag(FLAGS_mib)} << 20) / absl::GetFlag(FLAGS_arrays) / 4;
  auto created = HostedJob::Create(MakeHello(elements), &clock, &directory);
  TPS_CHECK(created.ok(), "the job is refused");
  HostedJob& job = **created;
  HelloReply reply;
  TPS_CHECK(job.Enter(0, 1, &reply).ok(), "the slot is refused");

  const std::vector<float> gradient(job.store().largest_block_bytes() / sizeof(float), 1e-3f);
  const auto push = [&](BlockId block, Step step, Version base) {
    PushHeader header;
    header.incarnation = 1;
    header.step = step;
    header.block = block;
    header.base_version = base;
    header.weight = 1;
    std::vector<grpc::Slice> slices;
    slices.emplace_back(gradient.data(), job.map().blocks()[block].length * sizeof(float),
                        grpc::Slice::STATIC_SLICE);
    TPS_CHECK(job.PushFrame(header, FramePayload(std::move(slices))).ok(), "a push is refused");
  };
  const auto blocks = static_cast<BlockId>(job.store().owned());
  for (BlockId block = 0; block < blocks; ++block) push(block, 0, 0);

  std::atomic<bool> done{false};
  Figures pushes;
  Figures reads;
  std::thread pusher([&] {
    for (Step step = 1; !done; ++step) {
      for (BlockId block = 0; block < blocks && !done; ++block) {
        const absl::Duration begun = clock.Now();
        push(block, step, step - 1);
        pushes.Add(clock.Now() - begun);
      }
    }
  });
  std::thread reader([&] {
    while (!done) {
      for (BlockId block = 0; block < blocks && !done; ++block) {
        const absl::Duration begun = clock.Now();
        TPS_CHECK(job.store().Read(block).ok(), "a read is refused");
        reads.Add(clock.Now() - begun);
      }
    }
  });

  std::printf("%.0f MiB of state in %u blocks; times in ms\n",
              static_cast<double>(job.store().state_bytes()) / (1 << 20), blocks);
  std::printf("%-14s %8s %10s %12s %10s %12s\n", "beside", "seconds", "pushes/s", "longest",
              "reads/s", "longest");
  pushes.Clear();
  reads.Clear();
  std::this_thread::sleep_for(
      absl::ToChronoMilliseconds(absl::Seconds(absl::GetFlag(FLAGS_seconds))));
  Print("nothing", absl::Seconds(absl::GetFlag(FLAGS_seconds)), pushes, reads);
  std::printf("\n");
  std::fflush(stdout);
  for (int shard = 1; shard <= absl::GetFlag(FLAGS_shards); ++shard) {
    pushes.Clear();
    reads.Clear();
    const absl::StatusOr<ShardInfo> info = directory.WriteShard(shard);
    if (!info.ok()) {
      std::printf("%s\n", std::string(info.status().message()).c_str());
      break;
    }
    Print(absl::StrCat("shard ", shard).c_str(), absl::Seconds(info->seconds()), pushes, reads);
    std::printf("   longest block lock: %.2f ms\n", info->longest_pause_seconds() * 1e3);
    std::fflush(stdout);
    files->RemoveFile(names.ShardPath(shard, 0, 1)).IgnoreError();
    files->RemoveDirectory(names.CheckpointPath(shard)).IgnoreError();
  }
  done = true;
  pusher.join();
  reader.join();
  return 0;
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return torchps::Run();
}
