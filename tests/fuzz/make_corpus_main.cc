// Writes the corpus for fuzz targets that read binary files or messages:
//
//   bazel run //tests/fuzz:make_corpus -- $PWD/tests/fuzz/corpus
//
// The corpus of text formats is written by hand.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/byte_buffer.h"
#include "tests/checkpoint/pickle/python_state_dict.h"
#include "tests/checkpoint/pickle/zip_archive.h"
#include "tests/fuzz/small_checkpoint.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/checkpoint/shard_writer.h"
#include "torchps/common/check.h"
#include "torchps/job/job_spec.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/server/coordinator/job_coordinator.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/log_segment.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {
namespace {

class Corpus {
 public:
  explicit Corpus(std::string root) : root_(std::move(root)) {}

  void Add(const std::string& target, const std::string& name, const std::string& bytes) {
    const std::string directory = root_ + "/" + target;
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
  }

 private:
  const std::string root_;
};

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  TPS_CHECK(buffer.Dump(&slices).ok(), "cannot read the frame's slices");
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

void AddFrames(Corpus& corpus) {
  const std::vector<float> values = {1, -2, 3.5f, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  PushHeader push;
  push.slot = 3;
  push.incarnation = 1234567890123;
  push.step = 42;
  push.block = 5;
  push.base_version = 41;
  push.server_incarnation = 0xfedcba9876543210;
  push.weight = 32;
  push.block_count = 6;
  const std::string begin = {'\x07', '\x0f'};
  corpus.Add("frame", "push_float32", begin + Flat(EncodePushFrame(push, values, nullptr)));
  for (const EncodingSpec::Kind kind :
       {EncodingSpec::BFLOAT16, EncodingSpec::INT8, EncodingSpec::TOP_K}) {
    push.encoding = kind;
    std::vector<uint8_t> encoded(EncodedBytes(kind, 16, /*fraction=*/0.25));
    Encode(kind, values, /*fraction=*/0.25, encoded.data());
    corpus.Add("frame", absl::StrCat("push_", kind),
               begin + Flat(EncodePushFrame(push, absl::MakeConstSpan(encoded), nullptr)));
  }
  push.encoding = EncodingSpec::FLOAT32;
  push.absent = {{2, 5}, {9, 16}};
  corpus.Add("frame", "push_partial", begin + Flat(EncodePushFrame(push, values, nullptr)));
  PullHeader pull;
  pull.block = 1;
  pull.version = 99;
  pull.block_count = 2;
  pull.min_clock = 7;
  pull.parked_us = 1500;
  corpus.Add("frame", "pull", begin + Flat(EncodePullFrame(pull, values, nullptr)));
}

void AddShard(Corpus& corpus, const std::string& name, const std::vector<MissedRun>& missed) {
  FaultyFileSystem files;
  std::vector<ShardBlock> blocks;
  for (const BlockRange& range : SmallShardBlocks()) {
    blocks.push_back({range, range.averaged ? 0 : 1});
  }
  auto writer = ShardWriter::Create(&files, "shard", SmallShardHeader(), blocks);
  TPS_CHECK(writer.ok(), writer.status().ToString().c_str());
  for (const ShardBlock& block : blocks) {
    const std::vector<float> values(block.range.length, 1.5f);
    const std::vector<float> slot(block.range.length, 0.25f);
    std::vector<LedgerEntry> ledger(3);
    ledger[2].incarnation = 4;
    ledger[2].last_step = 9;
    ledger[2].last_verdict = ACCEPTED;
    ledger[2].applied = 8;
    BlockImage image;
    image.range = block.range;
    image.version = 10;
    image.values = values;
    if (block.slots > 0) image.slots.emplace_back(slot);
    image.ledger = ledger;
    if (block.slots > 0) image.missed = missed;
    TPS_CHECK((*writer)->Append(image).ok(), "a block can be appended");
  }
  TPS_CHECK((*writer)->Finish().ok(), "a shard can be finished");
  const auto bytes = ReadWholeFile(files, "shard", 1 << 20);
  TPS_CHECK(bytes.ok(), bytes.status().ToString().c_str());
  corpus.Add("shard", name, *bytes);
}

JoinRequest Join() {
  JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  JobSpec job;
  job.set_name("fuzz");
  job.mutable_model()->set_name("linear");
  job.mutable_optimizer()->mutable_adam();
  job.mutable_optimizer()->set_learning_rate(0.01);
  const auto normal = NormalizeJobSpec(job);
  TPS_CHECK(normal.ok(), normal.status().ToString().c_str());
  *request.mutable_job() = *normal;
  SegmentProto& segment = *request.mutable_layout()->add_segment();
  segment.set_name("weight");
  segment.add_shape(16);
  segment.set_group(-1);
  request.set_wanted_slot(-1);
  request.set_nonce(5);
  request.set_host("here");
  request.set_device("cpu");
  request.set_train_samples(100);
  request.set_server_count(1);
  request.add_server_address("localhost:1");
  return request;
}

CoordinatorState RunningState() {
  JobCoordinator::Options options;
  options.has_directory = true;
  JobCoordinator coordinator(options);
  const absl::Duration now = absl::Seconds(1000);
  const auto joined = coordinator.Join(Join(), now);
  TPS_CHECK(joined.ok(), joined.status().ToString().c_str());
  AwaitStartRequest await;
  await.set_slot(joined->slot());
  await.set_incarnation(joined->incarnation());
  coordinator.AwaitStart(await, now, [](const auto&) {});
  await.set_initialized(true);
  coordinator.AwaitStart(await, now, [](const auto&) {});
  TPS_CHECK(coordinator.BeginCheckpoint(now).has_value(), "training waits for the first one");
  coordinator.EndCheckpoint(CheckpointStatus(), now);
  NextWorkRequest work;
  work.set_slot(joined->slot());
  work.set_incarnation(joined->incarnation());
  work.set_call(1);
  coordinator.NextWork(work, now, [](const auto&) {});
  for (const auto& give : coordinator.TakeReady()) give();
  return coordinator.Save(now);
}

void AddMessages(Corpus& corpus) {
  corpus.Add("coordinator", "join", std::string(1, '\0') + Join().SerializeAsString());
  corpus.Add("coordinator", "in_place", '\1' + RunningState().SerializeAsString());
  corpus.Add("coordinator", "resume", '\3' + RunningState().SerializeAsString());
  Manifest manifest;
  manifest.set_checkpoint(3);
  manifest.set_job_id(7);
  *manifest.mutable_job() = Join().job();
  *manifest.mutable_layout() = Join().layout();
  manifest.set_server_count(1);
  ShardInfo& shard = *manifest.add_shard();
  shard.set_file("server-0-of-1.safetensors");
  shard.set_bytes(1000);
  shard.set_crc32c(12345);
  *manifest.mutable_coordinator() = RunningState();
  manifest.set_created("2026-01-01T00:00:00Z");
  const auto text = EncodeManifest(manifest);
  TPS_CHECK(text.ok(), text.status().ToString().c_str());
  corpus.Add("manifest", "file", *text);
  const size_t begin = text->find("\"manifest\": ") + 12;
  corpus.Add("manifest", "json", text->substr(begin, text->size() - begin - 2));
}

void AddLog(Corpus& corpus) {
  LogSegmentHeader header;
  header.identity.job_id = 7;
  header.identity.blocks = 3;
  header.number = 1;
  header.first_sequence = 1;
  header.salt = 0x0123456789abcdef;
  const auto begin = EncodeLogSegmentHeader(header);
  std::string segment(begin.begin(), begin.end());
  const std::vector<float> values(16, 0.5f);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    LogRecord record;
    if (sequence == 2) record.absent = {{2, 5}, {9, 16}};
    record.kind = sequence == 1   ? LogKind::kInitialValues
                  : sequence == 2 ? LogKind::kGradient
                                  : LogKind::kLedger;
    record.sequence = sequence;
    record.block = 1;
    record.base_version = sequence == 3 ? 1 : 0;
    record.version = sequence == 1 ? 0 : 1;
    record.terms.progress = static_cast<uint32_t>(sequence) << 29;
    if (sequence > 1) {
      LogLedgerRow row;
      row.slot = 2;
      row.entry.incarnation = 5;
      row.entry.last_step = static_cast<Step>(sequence);
      row.entry.last_verdict = sequence == 2 ? ACCEPTED : WITHHELD;
      record.ledger.push_back(row);
    }
    std::vector<grpc::Slice> slices;
    if (sequence < 3) slices.emplace_back(values.data(), values.size() * sizeof(float));
    const FramePayload payload(std::move(slices));
    std::vector<uint8_t> bytes(
        LogRecordBytes(record.ledger.size(), record.absent.size(), payload.bytes()));
    WriteLogRecord(record, payload, bytes.data());
    SealLogRecord(header.salt, sequence - 1, bytes.data());
    segment.append(bytes.begin(), bytes.end());
  }
  corpus.Add("push_log", "three_records", segment);
}

std::string BigEndian(uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16),
          static_cast<char>(number >> 8), static_cast<char>(number)};
}

void AddImages(Corpus& corpus) {
  const std::string images =
      BigEndian(0x803) + BigEndian(2) + BigEndian(3) + BigEndian(4) + std::string(24, '\x55');
  const std::string labels = BigEndian(0x801) + BigEndian(2) + std::string("\1\2");
  corpus.Add("idx", "two_images", static_cast<char>(labels.size()) + images + labels);
  corpus.Add("cifar10", "one_image", '\3' + std::string(3 * 32 * 32, '\x21'));
}

void AddStateDicts(Corpus& corpus) {
  std::string pickle;
  TPS_CHECK(absl::Base64Unescape(testing::kPythonStateDict, &pickle), "the pickle is base64");
  corpus.Add("state_dict", "pickle", pickle);
  TPS_CHECK(absl::Base64Unescape(testing::kPythonStateDict4, &pickle), "the pickle is base64");
  corpus.Add("state_dict", "pickle4", pickle);
  corpus.Add("state_dict", "zip", testing::ZipArchive(2));
  corpus.Add("state_dict", "zip64", testing::ZipArchive(2, /*zip64=*/true));
}

void AddParcels(Corpus& corpus) {
  TensorMessage parcel;
  parcel.set_meeting(7);
  parcel.set_kind(TensorMessage::ACTIVATION);
  parcel.set_order(1);
  parcel.set_micro_batch(2);
  for (const TensorHeader::Type type : {TensorHeader::FLOAT32, TensorHeader::BOOL}) {
    TensorHeader& tensor = *parcel.mutable_tensor();
    tensor.set_type(type);
    tensor.clear_shape();
    tensor.add_shape(2);
    tensor.add_shape(3);
    parcel.set_payload(std::string(type == TensorHeader::BOOL ? 6 : 24, '\1'));
    corpus.Add("parcel", absl::StrCat("activation_", type), parcel.SerializeAsString());
  }
  parcel.clear_tensor();
  parcel.clear_payload();
  parcel.set_kind(TensorMessage::ORDER);
  parcel.mutable_order_text()->set_task(ReplicaOrder::TRAIN);
  parcel.mutable_order_text()->add_sample(5);
  corpus.Add("parcel", "order", parcel.SerializeAsString());
}

void AddCopies(Corpus& corpus) {
  std::string calls;
  const auto add = [&calls](char kind, const google::protobuf::MessageLite& message) {
    const std::string bytes = message.SerializeAsString();
    calls += {kind, static_cast<char>(bytes.size()), static_cast<char>(bytes.size() >> 8)};
    calls += bytes;
  };
  ListCopiesRequest list;
  list.set_job_id(7);
  list.set_server_index(1);
  add(2, list);
  StoreCopyRequest store;
  CopiedFile& file = *store.mutable_file();
  file.set_job_id(7);
  file.set_server_index(1);
  file.set_file("job/log");
  store.set_data("records");
  add(0, store);  // a file that grows
  store.set_offset(4);
  store.set_data("rds and more");
  add(0, store);
  file.set_file("job/shard");
  file.set_bytes(10);
  store.set_offset(0);
  store.set_data("values");
  add(0, store);  // a whole file in two pieces
  store.set_offset(6);
  store.set_data("last");
  add(0, store);
  store.set_offset(0);
  store.set_data("new values");
  add(0, store);  // replaced in one piece
  add(2, list);
  ReadCopyRequest read;
  *read.mutable_file() = file;
  read.set_max_bytes(100);
  add(3, read);
  add(5, list);  // a restart
  ListCopiesReply copies;
  *copies.add_file() = file;
  copies.add_file()->set_file("job/log");
  copies.mutable_file(1)->set_job_id(7);
  copies.mutable_file(1)->set_bytes(20);
  add(4, copies);
  DropCopiesRequest drop;
  *drop.add_file() = file;
  add(1, drop);
  corpus.Add("copies", "calls", calls);
  calls.clear();
  for (const uint64_t bytes : {~uint64_t{0} >> 1, ~uint64_t{0}}) {
    copies.mutable_file(1)->set_bytes(bytes);
    add(4, copies);
  }
  corpus.Add("copies", "sizes", calls);
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  Corpus corpus(argv[1]);
  AddFrames(corpus);
  AddShard(corpus, "small", {});
  AddShard(corpus, "missed", {{0, 3, 2}, {5, 8, 10}});
  AddMessages(corpus);
  AddLog(corpus);
  AddImages(corpus);
  AddStateDicts(corpus);
  AddParcels(corpus);
  AddCopies(corpus);
  return 0;
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) { return torchps::Main(argc, argv); }
