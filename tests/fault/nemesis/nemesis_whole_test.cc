// Runs nemesis trials (nemesis_trial.h) with whole workers that train a libtorch module.

#include "gtest/gtest.h"
#include "tests/fault/nemesis/nemesis_trial.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

using Workers = NemesisCluster::Workers;

class NemesisWholeTest : public ::testing::TestWithParam<NemesisTrial::Options> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }
};

TEST_P(NemesisWholeTest, ServersApplyPushesOnceAndSlotsDoNotStall) {
  NemesisTrial(GetParam()).Run();
}

INSTANTIATE_TEST_SUITE_P(
    Workers, NemesisWholeTest,
    ::testing::Values(NemesisTrial::Options{"Log", DurabilitySpec::LOG, true, Workers::kWhole},
                      NemesisTrial::Options{"LinkedCheckpoint", DurabilitySpec::CHECKPOINT, true,
                                            Workers::kWholeLinked},
                      NemesisTrial::Options{"EncodingLog", DurabilitySpec::LOG, true,
                                            Workers::kWholeEncoding}),
    [](const ::testing::TestParamInfo<NemesisTrial::Options>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
