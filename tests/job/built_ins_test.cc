#include "torchps/job/built_ins.h"

#include "gtest/gtest.h"

namespace torchps {
namespace {

JobSpec Job(const std::string& model, const std::string& source) {
  JobSpec job;
  job.mutable_model()->set_name(model);
  job.mutable_data()->set_source(source);
  return job;
}

TEST(BuiltInsTest, SuggestsANameForATypo) {
  EXPECT_EQ(CheckBuiltInModel(Job("mlp", "digits")), absl::OkStatus());
  EXPECT_EQ(CheckBuiltInModel(Job("mpl", "digits")),
            absl::InvalidArgumentError(
                "job field model.name is \"mpl\"; did you mean \"mlp\"? ps_worker has: linear, "
                "mlp, convnet, resnet18, transformer"));
  EXPECT_EQ(CheckBuiltInModel(Job("", "digits")).message(),
            "job field model.name is not set; ps_worker has: linear, mlp, convnet, resnet18, "
            "transformer");
  EXPECT_EQ(CheckBuiltInData(Job("mlp", "csv")), absl::OkStatus());
  EXPECT_EQ(
      CheckBuiltInData(Job("mlp", "digit"))
          .message()
          .find("job field data.source is \"digit\"; did you mean \"digits\"? ps_worker has: "),
      0u);
}

TEST(BuiltInsTest, AcceptsKnownDeviceNamesAndRejectsOthers) {
  for (const char* names :
       {"cpu", "cuda", "cuda:0", "cuda:15", "auto", "cuda:all", "cpu,cpu", "cuda:0,cuda:1,cpu"}) {
    EXPECT_EQ(CheckDeviceNames(names), absl::OkStatus()) << names;
  }
  for (const char* names : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:x",
                            "cuda:99999999999999999999", "cpu,", "cpu,auto", "cuda,cuda"}) {
    EXPECT_EQ(CheckDeviceNames(names).code(), absl::StatusCode::kInvalidArgument) << names;
  }
  EXPECT_EQ(CheckDeviceNames("cpu,coda").message(),
            "device 'coda' is not known; did you mean 'cuda'? expected auto, cpu, cuda, "
            "cuda:INDEX, cuda:all, or several, as cuda:0,cuda:1");
  EXPECT_EQ(
      CheckDeviceNames("cpu,cuda").message(),
      "device 'cuda' of 'cpu,cuda' has no index; expected an index for each GPU, as in cuda:0");
}

}  // namespace
}  // namespace torchps
