// Tests pulls that the caller does not read. An unsent block keeps its bytes of the pull budget
// only while the budget suffices for other pulls.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/plain_worker.h"
#include "torchps/server/server.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// A block is larger than the data that a connection buffers for an unread stream.
constexpr int64_t kBlockElements = int64_t{1} << 18;
constexpr int64_t kBlockBytes = kBlockElements * sizeof(float);
constexpr int kBlocks = 2;
// Number of blocks for which the server has send memory.
constexpr int kShares = 3;
constexpr absl::Duration kLease = absl::Seconds(10);
// The time for which an unread pull may block other pulls: the lease, plus the transfer time of a
// block on a slow link.
constexpr absl::Duration kPatience = absl::Seconds(11);

// Holds a Pull on a separate connection. Nothing is read before Read().
class UnreadPull {
 public:
  explicit UnreadPull(const std::string& address, const HelloRequest& hello)
      : worker_(PlainChannel(address), hello) {
    PullRequest request;
    request.set_read_only(true);
    stream_ = worker_.stub().Pull(&context_, request);
  }
  ~UnreadPull() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }

  // Reads the whole stream and counts the frames.
  absl::Status Read(int* frames) {
    PullFrame frame;
    while (stream_->Read(&frame)) ++*frames;
    ended_ = true;
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  PlainWorker worker_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<PullFrame>> stream_;
  bool ended_ = false;
};

class UnreadPullsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Server::Options options;
    options.clock = &clock_;
    options.send_bytes = kShares * kBlockBytes;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    JobHarness::Options job;
    job.trained = kBlocks * kBlockElements;
    job.block_elements = kBlockElements;
    job.job = absl::StrCat("membership { lease_seconds: ", absl::ToDoubleSeconds(kLease), " }");
    hello_ = JobHarness::Hello(job);
    worker_ = std::make_unique<PlainWorker>(PlainChannel(server_->address()), hello_);
    ASSERT_TRUE(worker_->Hello().ok());
    ASSERT_TRUE(worker_->Initialize(0).ok());
    ASSERT_TRUE(Eventually([&] { return Held() == 0; }));
    for (int i = 0; i < kShares; ++i) {
      unread_.push_back(std::make_unique<UnreadPull>(server_->address(), hello_));
    }
    ASSERT_TRUE(Eventually([&] { return Held() == kShares * kBlockBytes; }));
  }

  int64_t Held() {
    const absl::StatusOr<ServerStatus> status = worker_->Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? static_cast<int64_t>(status->frame_bytes_held()) : -1;
  }
  // Returns true once the server noticed that the lease expired.
  bool LeaseIsOver() {
    return Eventually([&] {
      const absl::StatusOr<ServerStatus> status = worker_->Status();
      return status.ok() && status->slot_size() == 1 && !status->slot(0).live();
    });
  }

  ManualClock clock_;
  std::unique_ptr<Server> server_;
  HelloRequest hello_;
  std::unique_ptr<PlainWorker> worker_;
  std::vector<std::unique_ptr<UnreadPull>> unread_;
};

TEST_F(UnreadPullsTest, UnreadPullsDoNotBlockAnotherPull) {
  std::atomic<bool> is_through{false};
  absl::Status status;
  PlainWorker other(PlainChannel(server_->address()), hello_);
  ASSERT_TRUE(other.Hello().ok());
  std::thread thread([&] {
    status = other.ReadOnlyPull();
    is_through = true;
  });
  clock_.Advance(kPatience);
  EXPECT_TRUE(Eventually([&] { return is_through.load(); }));
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(UnreadPullsTest, UnreadPullsStayOpenWhileNoOtherPullNeedsTheirBytes) {
  clock_.Advance(kPatience);
  ASSERT_TRUE(LeaseIsOver());
  // The server checks unread pulls after it expires leases. A second expiry shows that the check
  // after the first one is complete.
  ASSERT_TRUE(worker_->Hello().ok());
  clock_.Advance(kPatience);
  ASSERT_TRUE(LeaseIsOver());
  EXPECT_EQ(Held(), kShares * kBlockBytes);
  for (const auto& pull : unread_) {
    int frames = 0;
    const absl::Status status = pull->Read(&frames);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(frames, kBlocks);
  }
}

}  // namespace
}  // namespace torchps
