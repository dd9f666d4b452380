// Tests the ps_worker process with real servers: its messages and exit codes for bad input, and
// that the running job continues.

#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/program.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// The job takes a few seconds and needs no data files.
constexpr char kJob[] = R"(
  name: "faults"
  model { name: "linear" }
  data { source: "digits" train_samples: 200 test_samples: 50 }
  training { epochs: 2 batch_size: 10 }
  optimizer { sgd {} learning_rate: 0.05 }
)";

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<std::string> WorkerCommand(const std::string& servers,
                                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"torchps/ps_worker",
                                      absl::StrCat("--servers=", servers),
                                      absl::StrCat("--job=", WriteFile("job.textproto", kJob))};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// Accepts connections and answers like a web server.
class WebServer {
 public:
  WebServer() {
    auto listener = ListenOnLoopback(&address_);
    EXPECT_TRUE(listener.ok());
    listener_ = *std::move(listener);
    thread_ = std::thread([this] {
      while (true) {
        FileDescriptor peer(accept(listener_.get(), nullptr, nullptr));
        if (peer.get() < 0) return;
        (void)WriteAll(peer, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
      }
    });
  }
  ~WebServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  std::string address_;
  FileDescriptor listener_;
  std::thread thread_;
};

// Expects that the worker exits with `code` and one message that contains all of `words`.
void ExpectEnd(Program& worker, ExitCode code, const std::vector<std::string>& words) {
  const absl::Time before = absl::Now();
  EXPECT_EQ(worker.AwaitExit(), static_cast<int>(code));
  std::vector<std::string> said;
  for (const std::string& line : worker.error()) {
    if (absl::StartsWith(line, "ps_worker: ") && !absl::StrContains(line, "waiting for")) {
      said.push_back(line);
    }
  }
  ASSERT_EQ(said.size(), 1) << "one sentence: " << ::testing::PrintToString(worker.error());
  for (const std::string& word : words) EXPECT_THAT(said[0], HasSubstr(word));
  std::printf("%d after %.1f s: %s\n", static_cast<int>(code),
              absl::ToDoubleSeconds(absl::Now() - before), said[0].c_str());
}

void ExpectRefusal(const std::vector<std::string>& command, ExitCode code,
                   const std::vector<std::string>& words) {
  Program worker(command);
  ExpectEnd(worker, code, words);
}

TEST(WorkerProcess, BadWorkersExitWithOneMessageAndDoNotDisturbTheJob) {
  const ServerProgram first = StartServerProgram();
  const ServerProgram second = StartServerProgram();
  const std::string servers = absl::StrCat(first.address, ",", second.address);
  // Trains until it is stopped.
  Program healthy(WorkerCommand(servers, {"--set=training.epochs=100000"}));
  ASSERT_NE(healthy.AwaitLine("torchps_worker progress "), "");

  // Errors in the command line and the job.
  ExpectRefusal(WorkerCommand(servers, {"--job=" + WriteFile("bad.textproto", "mdel { }")}),
                ExitCode::kUsage, {"mdel"});
  ExpectRefusal(WorkerCommand(servers, {"--set=optimizer.learnin_rate=1"}), ExitCode::kUsage,
                {"learnin_rate"});
  ExpectRefusal(WorkerCommand(servers, {"--set=training.batch_size=0"}), ExitCode::kUsage,
                {"training.batch_size", "0"});
  ExpectRefusal(WorkerCommand(servers, {"--set=model.name=perceptron"}), ExitCode::kUsage,
                {"model.name", "perceptron"});
  ExpectRefusal(WorkerCommand(servers, {"--device=gpu"}), ExitCode::kUsage, {"device", "gpu"});
  ExpectRefusal(WorkerCommand(servers, {"--slots=1"}), ExitCode::kUsage, {"--slots"});

  // Data.
  const std::string nowhere = absl::StrCat(std::getenv("TEST_TMPDIR"), "/nowhere");
  ExpectRefusal(WorkerCommand(servers, {"--set=data.source=idx", "--data=" + nowhere}),
                ExitCode::kData, {nowhere});
  const std::string header("\0\0\x08\x03\0\0\0\x0a\0\0\0\x1c\0\0\0\x1c", 16);
  WriteFile("train-images-idx3-ubyte", header + std::string(1000, 'x'));
  const std::string labels("\0\0\x08\x01\0\0\0\x0a", 8);
  WriteFile("train-labels-idx1-ubyte", labels + std::string(10, '\0'));
  ExpectRefusal(WorkerCommand(servers, {"--set=data.source=idx",
                                        absl::StrCat("--data=", std::getenv("TEST_TMPDIR"))}),
                ExitCode::kData, {"train-images-idx3-ubyte"});

  // A job or model that differs from the running job's.
  ExpectRefusal(
      WorkerCommand(servers, {"--set=training.epochs=100000", "--set=optimizer.learning_rate=0.5"}),
      ExitCode::kRefused, {"optimizer.learning_rate", "0.5"});
  ExpectRefusal(WorkerCommand(servers, {"--set=training.epochs=100000", "--set=model.name=mlp"}),
                ExitCode::kRefused, {"model"});

  // The address of another program, and an address at which no program listens.
  const WebServer web;
  ExpectRefusal(WorkerCommand(web.address()), ExitCode::kRefused,
                {web.address(), "is not a torchps server"});
  std::string nobody;
  ASSERT_TRUE(ListenOnLoopback(&nobody).ok());  // closes at once
  ExpectRefusal(WorkerCommand(nobody, {"--patience=1s"}), ExitCode::kUnreachable,
                {nobody, "has not answered for 1s", "connection refused"});

  // The healthy worker trained during all of the above.
  EXPECT_TRUE(healthy.running());
  const size_t lines = healthy.out().size();
  healthy.AskToStop();
  EXPECT_EQ(healthy.AwaitExit(), 0) << ::testing::PrintToString(healthy.error());
  EXPECT_EQ(healthy.out().back(), "torchps_worker stopped: terminated");
  EXPECT_GT(healthy.out().size(), lines) << "the healthy worker printed no more progress";
  EXPECT_TRUE(first.program->running());
  EXPECT_TRUE(second.program->running());
}

TEST(WorkerProcess, AStoppedWorkerReturnsItsUnusedSamples) {
  const ServerProgram server = StartServerProgram();
  const std::string job = "--set=training.epochs=30";
  // On any machine, this worker is slow enough to be in the middle of the job when it is stopped.
  Program first(WorkerCommand(server.address, {job, "--slow=1000", "--progress_seconds=0.01"}));
  ASSERT_NE(first.AwaitLine("torchps_worker progress "), "");
  first.AskToStop();
  EXPECT_EQ(first.AwaitExit(), 0) << ::testing::PrintToString(first.error());
  EXPECT_EQ(first.out().back(), "torchps_worker stopped: terminated");

  // The slot is free at once and the unused samples return, so the job uses each sample.
  Program second(WorkerCommand(server.address, {job, "--slot=0"}));
  EXPECT_EQ(second.AwaitExit(), 0) << ::testing::PrintToString(second.error());
  EXPECT_THAT(second.out().back(), HasSubstr("torchps_worker done slot=0"));
  EXPECT_TRUE(second.error().empty()) << ::testing::PrintToString(second.error());
}

TEST(WorkerProcess, AWorkerWaitsForItsServerAndThenTrains) {
  std::string address;
  ASSERT_TRUE(ListenOnLoopback(&address).ok());  // a free port, since this closes it
  const absl::Time before = absl::Now();
  Program worker(WorkerCommand(address));
  const std::string line = worker.AwaitError("waiting for server 0 at");
  EXPECT_THAT(line, HasSubstr(address));
  EXPECT_THAT(line, HasSubstr("connection refused"));
  std::printf("after %.1f s: %s\n", absl::ToDoubleSeconds(absl::Now() - before), line.c_str());

  const ServerProgram server = StartServerProgram({"--listen=" + address});
  ASSERT_EQ(server.address, address);
  EXPECT_EQ(worker.AwaitExit(), 0) << ::testing::PrintToString(worker.error());
  EXPECT_THAT(worker.out().back(), HasSubstr("torchps_worker done slot=0"));
}

}  // namespace
}  // namespace torchps
