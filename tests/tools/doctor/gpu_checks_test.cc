#include "torchps/tools/doctor/gpu_checks.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/tools/testing.h"

namespace torchps {
namespace {

using Level = Finding::Level;

// Describes a machine with two GPUs that the worker sees.
GpuFacts Healthy() {
  GpuFacts facts;
  facts.driver = "580.159.04";
  facts.device_files = 2;
  facts.worker = std::string("/opt/ps_worker");
  facts.seen = {"cpu", "cuda:0", "cuda:1"};
  return facts;
}

// Describes a machine with GPUs that the driver lists but the worker does not see.
GpuFacts Unseen(const std::string& complaint) {
  GpuFacts facts = Healthy();
  facts.seen = {"cpu"};
  facts.complaint = complaint;
  return facts;
}

constexpr char kNoCuda[] = "device 'cuda' cannot be used: this program is built without CUDA";
constexpr char kNoGpu[] = "device 'cuda' cannot be used: CUDA sees no GPU here";

void ExpectText(const Finding& finding, Level level, const std::string& text) {
  EXPECT_EQ(finding.level, level) << finding.subject << ": " << finding.text;
  EXPECT_EQ(finding.text, text) << finding.subject;
  EXPECT_EQ(finding.advice.empty(), level == Level::kOk) << finding.subject << ": " << finding.text;
}

void ExpectAll(const std::string& device, const GpuFacts& facts, const std::string& driver,
               const std::string& gpus, const std::string& worker) {
  const std::vector<Finding> findings = GpuFindings(device, facts);
  ASSERT_EQ(findings.size(), 3u);
  ExpectText(findings[0], Level::kOk, driver);
  ExpectText(findings[1], Level::kOk, gpus);
  ExpectText(findings[2], Level::kOk, worker);
}

TEST(GpuChecks, AcceptsACompleteMachine) {
  ExpectAll("cuda", Healthy(), "NVIDIA 580.159.04", "2 GPUs are seen", "sees cpu, cuda:0, cuda:1");
  ExpectAll("cuda:1", Healthy(), "NVIDIA 580.159.04", "2 GPUs are seen",
            "sees cpu, cuda:0, cuda:1");
}

TEST(GpuChecks, AGpuThatTheProgramSeesNeedsNoDeviceFile) {
  GpuFacts facts = Healthy();
  facts.driver = "";
  facts.device_files = 0;
  facts.seen = {"cpu", "cuda:0"};
  facts.visible = "7";
  ExpectAll("cuda", facts, "is loaded; its version is unknown",
            "1 GPU is seen, CUDA_VISIBLE_DEVICES=7 is set", "sees cpu, cuda:0");
}

TEST(GpuChecks, WithoutADriverReportsEachMissingPart) {
  GpuFacts facts = Unseen(kNoCuda);
  facts.driver = "";
  facts.device_files = 0;
  const std::vector<Finding> findings = GpuFindings("cuda", facts);
  ExpectText(findings[0], Level::kProblem, "no NVIDIA driver is loaded here");
  ExpectText(findings[1], Level::kProblem, "there is no /dev/nvidia0");
  ExpectText(findings[2], Level::kProblem, "is built without CUDA");
  EXPECT_EQ(findings[2].subject, "ps_worker /opt/ps_worker");
}

TEST(GpuChecks, DistinguishesCpuBuildsFromOldDrivers) {
  EXPECT_EQ(GpuFindings("cuda", Unseen(kNoCuda))[2].advice, "docs/gpus.md has the steps");
  const std::vector<Finding> old = GpuFindings("cuda", Unseen(kNoGpu));
  ExpectText(old[1], Level::kWarning, "2 GPUs in /dev, but none is visible to ps_worker");
  ExpectText(old[2], Level::kProblem, "is a CUDA build but sees no GPU");
  EXPECT_EQ(old[2].advice, "is the driver as new as the CUDA that torch is built with?");
  GpuFacts none = Unseen(kNoGpu);
  none.driver = "";
  EXPECT_EQ(GpuFindings("cuda", none)[2].advice, "install the driver first");
}

TEST(GpuChecks, QuotesAProgramThatDoesNotRun) {
  GpuFacts facts = Unseen("error while loading shared libraries: libtorch_cuda.so");
  facts.seen.clear();
  ExpectText(GpuFindings("cuda", facts)[2], Level::kProblem,
             "error while loading shared libraries: libtorch_cuda.so");
}

TEST(GpuChecks, ReportsTheVariableThatHidesGpus) {
  GpuFacts facts = Unseen(kNoGpu);
  facts.visible = "";
  ExpectText(GpuFindings("cuda", facts)[1], Level::kProblem,
             "2 GPUs in /dev, but none is visible; CUDA_VISIBLE_DEVICES= is set");
}

TEST(GpuChecks, ReportsAMissingGpuIndex) {
  ExpectText(GpuFindings("cuda:2", Healthy())[2], Level::kProblem,
             "sees cpu, cuda:0, cuda:1, but not cuda:2");
  ExpectText(GpuFindings("cuda:0,cuda:2,cpu", Healthy())[2], Level::kProblem,
             "sees cpu, cuda:0, cuda:1, but not cuda:2");
  ExpectText(GpuFindings("cuda:0,cuda:1", Healthy())[2], Level::kOk, "sees cpu, cuda:0, cuda:1");
  ExpectText(GpuFindings("cuda:all", Healthy())[2], Level::kOk, "sees cpu, cuda:0, cuda:1");
}

TEST(GpuChecks, AsksTheProgramForVisibleDevices) {
  const TestFolder folder;
  const std::string sees = folder.WriteScript(
      "sees",
      "[ \"$1\" = --devices ] && echo 'torchps_worker devices seen=cpu,cuda:0,cuda:1,cuda:2'\n");
  EXPECT_EQ(FindGpus(sees).seen, (std::vector<std::string>{"cpu", "cuda:0", "cuda:1", "cuda:2"}));
  EXPECT_EQ(FindGpus(sees).complaint, "");

  const GpuFacts none = FindGpus(folder.WriteScript(
      "none", "echo 'torchps_worker devices seen=cpu'\necho 'none: no GPU here: none' >&2\n"));
  EXPECT_EQ(none.seen, std::vector<std::string>{"cpu"});
  EXPECT_EQ(none.complaint, "no GPU here: none");

  EXPECT_EQ(FindGpus(folder.WriteScript("mute", "exit 3\n"))
                .complaint.find("did not list any devices and exited with code 3"),
            0u);
  EXPECT_FALSE(FindGpus(folder.path("nowhere")).complaint.empty());
  EXPECT_FALSE(FindGpus(absl::InvalidArgumentError("not built")).worker.ok());
}

TEST(GpuChecks, CpuJobsDoNotNeedACudaBuild) {
  const absl::Status not_built = absl::InvalidArgumentError("cannot find ps_worker");
  ExpectText(CheckDevice("cpu", not_built)[0], Level::kOk, "cpu");
  ExpectText(CheckDevice("cpu,cpu", not_built)[0], Level::kOk, "cpu,cpu");
  ExpectText(CheckDevice("auto", not_built)[0], Level::kOk,
             "auto selects the CPU, because no GPU is visible");
  for (const std::string name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0", ""}) {
    ExpectText(CheckDevice(name, not_built)[0], Level::kProblem, "'" + name + "' is not a device");
  }
  const std::vector<Finding> findings = CheckDevice("cuda", not_built);
  ASSERT_EQ(findings.size(), 3u);
  ExpectText(findings[2], Level::kProblem, "cannot find ps_worker");
}

}  // namespace
}  // namespace torchps
