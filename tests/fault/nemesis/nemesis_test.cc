// Runs nemesis trials (nemesis_trial.h) with workers that push integers and do not compute.

#include "gtest/gtest.h"
#include "tests/fault/nemesis/nemesis_trial.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

using Workers = NemesisCluster::Workers;

class NemesisTest : public ::testing::TestWithParam<NemesisTrial::Options> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }
};

TEST_P(NemesisTest, ServersApplyPushesOnceAndSlotsDoNotStall) { NemesisTrial(GetParam()).Run(); }

INSTANTIATE_TEST_SUITE_P(
    Levels, NemesisTest,
    ::testing::Values(
        NemesisTrial::Options{"Workers", DurabilitySpec::NONE, false},
        NemesisTrial::Options{"Checkpoint", DurabilitySpec::CHECKPOINT, true},
        NemesisTrial::Options{"Log", DurabilitySpec::LOG, true},
        NemesisTrial::Options{"LogWithCopies", DurabilitySpec::LOG, true, Workers::kCopiedPushers},
        NemesisTrial::Options{"BatchesCheckpoint", DurabilitySpec::CHECKPOINT, true,
                              Workers::kBatchPushers},
        NemesisTrial::Options{"BatchesLog", DurabilitySpec::LOG, true, Workers::kBatchPushers},
        NemesisTrial::Options{"LinkedCheckpoint", DurabilitySpec::CHECKPOINT, true,
                              Workers::kLinkedPushers},
        NemesisTrial::Options{"LinkedLog", DurabilitySpec::LOG, true, Workers::kLinkedPushers}),
    [](const ::testing::TestParamInfo<NemesisTrial::Options>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
