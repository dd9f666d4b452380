#include "torchps/worker/replicas/thread_all_reduce.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/utils.h"
#include "torchps/worker/replicas/host_group.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kReplicas = 3;

class ThreadAllReduceTest : public ::testing::Test {
 protected:
  // Runs each replica on a separate thread. Each thread leaves the meeting with the status of
  // `run`.
  std::vector<absl::Status> Run(const std::function<absl::Status(size_t replica)>& run) {
    meeting_.Begin();
    std::vector<absl::Status> results(kReplicas);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kReplicas; ++i) {
      threads.emplace_back([&, i] {
        results[i] = run(i);
        meeting_.Leave(results[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  class CountedGroup final : public LocalGroup {
   public:
    absl::Status Sum(absl::Span<const torch::Tensor> tensors) override {
      return host_.Sum(tensors);
    }
    absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) override {
      return host_.SumToAll(tensors);
    }
    absl::Status Copy(absl::Span<const torch::Tensor> tensors) override {
      return host_.Copy(tensors);
    }
    void Abandon() override { ++abandoned; }

    int abandoned = 0;

   private:
    HostGroup host_;
  };

  CountedGroup group_;
  ThreadAllReduce meeting_{&group_, kReplicas};
};

TEST_F(ThreadAllReduceTest, EachReplicaGetsEachSum) {
  for (const absl::Status& status : Run([this](size_t replica) {
         for (int turn = 0; turn < 200; ++turn) {
           const torch::Tensor tensor = torch::full({4}, 1.0 + static_cast<double>(replica) + turn);
           const absl::Status status = meeting_.SumToAll(replica, kReplicas, tensor);
           if (!status.ok()) return status;
           EXPECT_EQ(tensor[3].item<double>(), 6 + 3 * turn);
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(ThreadAllReduceTest, AShortPassNeedsOnlyReplicasWithSamples) {
  for (const absl::Status& status : Run([this](size_t replica) {
         const torch::Tensor tensor = torch::ones({1});
         absl::Status status = meeting_.SumToAll(replica, kReplicas, tensor);
         if (!status.ok() || replica == 2) return status;
         status = meeting_.SumToAll(replica, 2, tensor);
         EXPECT_EQ(tensor.item<double>(), 6);
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(ThreadAllReduceTest, AFailedReplicaDoesNotBlockTheOthers) {
  const absl::Status broken = absl::DataLossError("the third has no samples");
  for (const absl::Status& status : Run([&](size_t replica) {
         if (replica == 2) return broken;
         return meeting_.SumToAll(replica, kReplicas, torch::ones({1}));
       })) {
    EXPECT_EQ(status, broken);
  }
  EXPECT_EQ(meeting_.status(), broken);
  EXPECT_EQ(Run([&](size_t replica) {
              return meeting_.SumToAll(replica, kReplicas, torch::ones({1}));
            })[0],
            absl::OkStatus())
      << "the next step is not affected";
}

TEST_F(ThreadAllReduceTest, AnErrorOfADeviceAbandonsTheGroupOnce) {
  Run([&](size_t replica) {
    const absl::Status met = meeting_.SumToAll(replica, kReplicas, torch::ones({1}));
    return replica == 1 ? absl::InternalError("device-side assert triggered") : met;
  });
  EXPECT_EQ(group_.abandoned, 1);
}

TEST_F(ThreadAllReduceTest, ACancelledStepLeavesTheGroupUsable) {
  const auto given_up = [&](size_t replica) -> absl::Status {
    if (replica == 0) return absl::CancelledError("the gradient would come too late");
    // The batch norm throws this status, and torch passes the exception on without the status code.
    const absl::Status met = meeting_.SumToAll(replica, kReplicas, torch::ones({1}));
    return met.ok() ? met : absl::InternalError(met.message());
  };
  Run(given_up);
  EXPECT_TRUE(absl::IsCancelled(meeting_.status())) << meeting_.status();
  EXPECT_EQ(group_.abandoned, 0);
}

TEST_F(ThreadAllReduceTest, ADivergingReplicaDoesNotBlockTheOthers) {
  for (const int difference : {0, 1, 2}) {
    Run([&](size_t replica) {
      if (replica == 0) {
        if (difference == 0) return absl::OkStatus();  // skips the batch norm
        if (difference == 1) return meeting_.SumToAll(0, kReplicas, torch::ones({7}));
        return meeting_.SumToAll(0, 2, torch::ones({1}));
      }
      return meeting_.SumToAll(replica, kReplicas, torch::ones({1}));
    });
    EXPECT_TRUE(absl::IsInternal(meeting_.status())) << difference;
    EXPECT_THAT(std::string(meeting_.status().message()),
                HasSubstr("called different batch norms"));
  }
}

}  // namespace
}  // namespace torchps
