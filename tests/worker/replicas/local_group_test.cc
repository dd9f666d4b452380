// Tests the contract of the groups on the CPU: the copying group, and the NCCL group with a fake
// NCCL.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "torch/utils.h"
#include "torchps/worker/replicas/host_group.h"
#include "torchps/worker/replicas/nccl_group.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

// Runs the operations of a group in host memory when the group ends. (NCCL itself puts them into
// queues of the devices and runs them later.)
struct FakeNccl {
  struct Operation {
    enum Kind { kAllReduce, kReduce, kBroadcast } kind;
    void* data;
    size_t count;
    int type;
  };
  std::vector<Operation> open;
  bool in_group = false;
  int groups = 0;
  int destroyed = 0;
  int aborted = 0;
  int result = 0;  // returned by each operation
};
FakeNccl* fake = nullptr;

template <typename Number>
void Carry(const std::vector<FakeNccl::Operation>& operations) {
  const FakeNccl::Operation& first = operations.front();
  std::vector<Number> answer(first.count);
  for (const FakeNccl::Operation& operation : operations) {
    if (first.kind == FakeNccl::Operation::kBroadcast && &operation != &first) break;
    for (size_t i = 0; i < first.count; ++i) answer[i] += static_cast<Number*>(operation.data)[i];
  }
  for (const FakeNccl::Operation& operation : operations) {
    if (first.kind == FakeNccl::Operation::kReduce && &operation != &first) break;
    std::memcpy(operation.data, answer.data(), first.count * sizeof(Number));
  }
}

int Add(FakeNccl::Operation operation) {
  EXPECT_TRUE(fake->in_group) << "several operations on one thread must be grouped";
  fake->open.push_back(operation);
  return fake->result;
}

Nccl FakeFunctions() {
  Nccl nccl;
  nccl.init_all = [](Nccl::Communicator* communicators, int count, const int*) {
    for (int i = 0; i < count; ++i) communicators[i] = fake;
    return fake->result;
  };
  nccl.destroy = [](Nccl::Communicator) {
    ++fake->destroyed;
    return 0;
  };
  nccl.abort = [](Nccl::Communicator) {
    EXPECT_TRUE(fake->in_group) << "one after the other, the operations would deadlock";
    ++fake->aborted;
    return 0;
  };
  nccl.error_text = [](int) { return "unhandled cuda error"; };
  nccl.group_start = [] {
    fake->in_group = true;
    fake->open.clear();
    return 0;
  };
  nccl.group_end = [] {
    fake->in_group = false;
    ++fake->groups;
    if (fake->result != 0) return fake->result;
    if (fake->open.empty()) return 0;
    if (fake->open.front().type == 7) Carry<float>(fake->open);
    if (fake->open.front().type == 8) Carry<double>(fake->open);
    return 0;
  };
  nccl.all_reduce = [](const void* from, void* to, size_t count, int type, int operation,
                       Nccl::Communicator, Nccl::Stream) {
    EXPECT_EQ(from, to);
    EXPECT_EQ(operation, 0);
    return Add({FakeNccl::Operation::kAllReduce, to, count, type});
  };
  nccl.reduce = [](const void*, void* to, size_t count, int type, int operation, int root,
                   Nccl::Communicator, Nccl::Stream) {
    EXPECT_EQ(operation, 0);
    EXPECT_EQ(root, 0);
    return Add({FakeNccl::Operation::kReduce, to, count, type});
  };
  nccl.broadcast = [](const void*, void* to, size_t count, int type, int root, Nccl::Communicator,
                      Nccl::Stream) {
    EXPECT_EQ(root, 0);
    return Add({FakeNccl::Operation::kBroadcast, to, count, type});
  };
  return nccl;
}

constexpr size_t kReplicas = 3;

class LocalGroupTest : public ::testing::TestWithParam<bool> {
 protected:
  LocalGroupTest() {
    fake = &fake_;
    if (GetParam()) {
      group_ = *NcclGroup::Create(FakeFunctions(), DeviceList(kReplicas, torch::kCPU));
    } else {
      group_ = std::make_unique<HostGroup>();
    }
  }
  ~LocalGroupTest() override {
    group_.reset();  // returns the communicators to the fake
    fake = nullptr;
  }

  // Returns one tensor for each replica i, with the elements i + 1, 10 (i + 1) and 100 (i + 1).
  static std::vector<torch::Tensor> Tensors(size_t replicas, torch::ScalarType type) {
    std::vector<torch::Tensor> tensors;
    for (size_t i = 0; i < replicas; ++i) {
      tensors.push_back(torch::tensor({1.0, 10.0, 100.0}).to(type) * static_cast<double>(i + 1));
    }
    return tensors;
  }
  static std::vector<double> Elements(const torch::Tensor& tensor) {
    const torch::Tensor all = tensor.to(torch::kFloat64);
    return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
  }

  FakeNccl fake_;
  std::unique_ptr<LocalGroup> group_;
};

TEST_P(LocalGroupTest, TheFirstReplicaGetsTheSum) {
  std::vector<torch::Tensor> tensors = Tensors(kReplicas, torch::kFloat32);
  ASSERT_TRUE(group_->Sum(tensors).ok());
  EXPECT_THAT(Elements(tensors[0]), ElementsAre(6, 60, 600));
}

TEST_P(LocalGroupTest, EachReplicaGetsTheSum) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    std::vector<torch::Tensor> tensors = Tensors(kReplicas, type);
    ASSERT_TRUE(group_->SumToAll(tensors).ok());
    for (const torch::Tensor& tensor : tensors) {
      EXPECT_THAT(Elements(tensor), ElementsAre(6, 60, 600));
    }
  }
}

TEST_P(LocalGroupTest, BroadcastsTheFirstReplicasValues) {
  std::vector<torch::Tensor> tensors = Tensors(kReplicas, torch::kFloat32);
  ASSERT_TRUE(group_->Copy(tensors).ok());
  for (const torch::Tensor& tensor : tensors) {
    EXPECT_THAT(Elements(tensor), ElementsAre(1, 10, 100));
  }
}

TEST_P(LocalGroupTest, SumsOverAPartOfTheReplicas) {
  for (const size_t replicas : {1, 2}) {
    std::vector<torch::Tensor> tensors = Tensors(replicas, torch::kFloat32);
    ASSERT_TRUE(group_->SumToAll(tensors).ok());
    const double sum = replicas == 1 ? 1 : 3;
    EXPECT_THAT(Elements(tensors.back()), ElementsAre(sum, 10 * sum, 100 * sum));
  }
  EXPECT_EQ(fake_.groups, 0) << "NCCL would wait forever for the third replica";
}

TEST_P(LocalGroupTest, AFailedSumIsAnInternalError) {
  std::vector<torch::Tensor> tensors = Tensors(kReplicas, torch::kFloat32);
  tensors[1] = torch::empty({2});
  fake_.result = 1;
  const absl::Status status = group_->Sum(tensors);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_FALSE(fake_.in_group);
}

TEST_P(LocalGroupTest, ARefusedTensorDoesNotBreakTheGroup) {
  if (GetParam()) {
    std::vector<torch::Tensor> tensors = Tensors(kReplicas, torch::kFloat32);
    tensors[1] = tensors[1].to(torch::kInt64);
    const absl::Status status = group_->SumToAll(tensors);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_FALSE(fake_.in_group);
    EXPECT_EQ(fake_.groups, 0) << "the first replica would wait forever for the second";
  }
  std::vector<torch::Tensor> tensors = Tensors(kReplicas, torch::kFloat32);
  ASSERT_TRUE(group_->SumToAll(tensors).ok());
  EXPECT_THAT(Elements(tensors[2]), ElementsAre(6, 60, 600));
}

INSTANTIATE_TEST_SUITE_P(Groups, LocalGroupTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Nccl" : "Host"; });

TEST(NcclGroupTest, DestroysItsCommunicatorsAndReportsAFailedStart) {
  FakeNccl nccl;
  fake = &nccl;
  const DeviceList devices(kReplicas, torch::kCPU);
  { const auto group = *NcclGroup::Create(FakeFunctions(), devices); }
  EXPECT_EQ(nccl.destroyed, 3);
  nccl.result = 1;
  EXPECT_EQ(NcclGroup::Create(FakeFunctions(), devices).status(),
            absl::InternalError("NCCL failed: unhandled cuda error"));
  fake = nullptr;
}

class FailingNcclTest : public ::testing::Test {
 protected:
  FailingNcclTest() {
    fake = &nccl_;
    group_ = *NcclGroup::Create(FakeFunctions(), DeviceList(kReplicas, torch::kCPU));
  }
  ~FailingNcclTest() override {
    group_.reset();
    fake = nullptr;
  }

  FakeNccl nccl_;
  std::vector<torch::Tensor> tensors_ = std::vector<torch::Tensor>(kReplicas, torch::ones({3}));
  std::unique_ptr<NcclGroup> group_;
};

TEST_F(FailingNcclTest, AFailureAbortsTheGroupAndLaterOperations) {
  nccl_.result = 1;
  const absl::Status failed = group_->SumToAll(tensors_);
  EXPECT_EQ(failed, absl::InternalError("NCCL failed: unhandled cuda error"));
  EXPECT_EQ(nccl_.aborted, 3);
  nccl_.result = 0;
  const int groups = nccl_.groups;
  EXPECT_EQ(group_->Copy(tensors_), failed);
  EXPECT_EQ(nccl_.groups, groups);
  group_.reset();
  EXPECT_EQ(nccl_.destroyed, 0) << "abandoned communicators must not be destroyed again";
}

TEST_F(FailingNcclTest, ASecondAbandonDoesNothing) {
  group_->Abandon();
  group_->Abandon();
  EXPECT_EQ(nccl_.aborted, 3);
  EXPECT_TRUE(absl::IsInternal(group_->Sum(tensors_)));
}

TEST_F(FailingNcclTest, RefusesAnUnsupportedTensorBeforeAnyDeviceBegins) {
  tensors_[2] = torch::ones({3}, torch::kInt64);
  EXPECT_TRUE(absl::IsInternal(group_->Sum(tensors_)));
  EXPECT_EQ(nccl_.groups, 0) << "the first two replicas would wait forever for the third";
  EXPECT_FALSE(nccl_.in_group);
  tensors_[2] = torch::ones({3});
  EXPECT_TRUE(group_->Sum(tensors_).ok());
}

class NcclOnGpuTest : public GpuTest {};

// On a single GPU, this test shows that NCCL's functions exist and accept the arguments. It does
// not show that sums are right.
TEST_F(NcclOnGpuTest, AGroupOfOneGpuRunsEachOperation) {
  const torch::Device gpu(torch::kCUDA, 0);
  const auto group = MakeLocalGroup({gpu});
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_NE(dynamic_cast<NcclGroup*>(group->get()), nullptr);
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    const std::vector<torch::Tensor> tensors = {torch::full({1000}, 3.0, gpu).to(type)};
    ASSERT_TRUE((*group)->Sum(tensors).ok());
    ASSERT_TRUE((*group)->SumToAll(tensors).ok());
    ASSERT_TRUE((*group)->Copy(tensors).ok());
    EXPECT_EQ(tensors[0].sum().item<double>(), 3000);
  }
  (*group)->Abandon();
  EXPECT_TRUE(absl::IsInternal((*group)->Sum({torch::ones({1}, gpu)})));
}

TEST(LocalGroupOfDevicesTest, TheCpuNeedsNoNccl) {
  const auto group = MakeLocalGroup({torch::kCPU, torch::kCPU});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_NE(dynamic_cast<HostGroup*>(group->get()), nullptr);
}

}  // namespace
}  // namespace torchps
