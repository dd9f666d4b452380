#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/tools/testing.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/tools/certs_command.h"
#include "torchps/tools/doctor/doctor_checks.h"
#include "torchps/tools/doctor/doctor_command.h"

namespace torchps {
namespace {

using Level = Finding::Level;

void Expect(const Finding& finding, Level level, const std::string& words) {
  EXPECT_EQ(finding.level, level) << finding.subject << ": " << finding.text;
  EXPECT_TRUE(absl::StrContains(finding.text, words)) << finding.subject << ": " << finding.text;
  EXPECT_EQ(finding.advice.empty(), level == Level::kOk) << finding.subject << ": " << finding.text;
}

TEST(Doctor, WarnsAboutTakenPortsAndRejectsInvalidAddresses) {
  std::string taken;
  const auto listener = ListenOnLoopback(&taken);
  ASSERT_TRUE(listener.ok());
  std::string free;
  ASSERT_TRUE(ListenOnLoopback(&free).ok());  // and closes at once
  Expect(CheckAddress(free), Level::kOk, "no process listens on that port yet");
  Expect(CheckAddress(taken), Level::kWarning, "something already listens there");
  Expect(CheckAddress("no-such-host.invalid:7000"), Level::kProblem, "cannot be resolved");
  // A machine without IPv6 cannot reach this address, but CheckAddress() accepts its form.
  EXPECT_FALSE(absl::StrContains(CheckAddress("[::1]:1").text, "resolved"));
  for (const char* wrong : {"alpha", ":7000", "alpha:", "alpha:0", "alpha:70000", "alpha:seven"}) {
    Expect(CheckAddress(wrong), Level::kProblem, "is not HOST:PORT");
  }
  Expect(CheckFreePort(), Level::kOk, "free ports");
}

TEST(Doctor, RejectsUnwritableDirectories) {
  const TestFolder folder;
  EXPECT_NE(CheckDirectory(folder.path("not/there/yet")).level, Level::kProblem);
  EXPECT_FALSE(std::filesystem::exists(folder.path("not")))
      << "the check does not leave a directory behind";
  folder.WriteFile("file", "");
  Expect(CheckDirectory(folder.path("file")), Level::kProblem, "is not a directory");
  Expect(CheckDirectory("/proc/1"), Level::kProblem, "cannot be written");
  EXPECT_TRUE(std::filesystem::is_regular_file(folder.path("file")));
}

TEST(Doctor, FindsMissingAndIncompleteData) {
  const TestFolder folder;
  JobSpec job = FromTestdata<JobStatus>("job_status.textproto").job();
  const auto look = [&](const std::string& source, const std::string& path) {
    job.mutable_data()->set_source(source);
    job.mutable_data()->set_path(path);
    return CheckData(job);
  };
  Expect(look("digits", "")[0], Level::kOk, "are generated");
  Expect(look("mine", "")[0], Level::kWarning, "only your own program can read it");
  Expect(look("idx", folder.path("nowhere"))[0], Level::kProblem, "train-images");
  EXPECT_EQ(look("idx", folder.path("nowhere")).size(), 2u) << "the test samples are missing, too";
  Expect(look("csv", folder.path("x.csv"))[0], Level::kProblem, "x.csv");
  Expect(look("csv", folder.WriteFile("x.csv", "a,b,c\n1,2,0\n3,4,1\n"))[0], Level::kOk,
         "2 samples, complete");
  Expect(look("csv", folder.WriteFile("named.csv", "a,b,kind\n1,NA,setosa\n"))[0], Level::kProblem,
         "line 2, column 1 (b)");
  job.mutable_data()->mutable_csv()->set_missing(COLUMN_MEAN);
  Expect(look("csv", folder.path("named.csv"))[0], Level::kOk, "1 samples, complete");
  Expect(look("images", folder.path("nowhere"))[0], Level::kProblem, "nowhere/train");
  Expect(look("tokens", folder.path("nowhere"))[1], Level::kProblem, "nowhere/val.bin");
  folder.WriteFile("train.bin", std::string("\1\0\2\0", 4));
  Expect(look("tokens", folder.path(""))[0], Level::kOk, "2 tokens, the largest is 2");
  job.mutable_data()->mutable_tokens()->set_vocabulary(2);
  Expect(look("tokens", folder.path(""))[0], Level::kProblem, "the largest is 2");
  Expect(look("text", folder.WriteFile("empty.txt", ""))[0], Level::kProblem, "is empty");
  Expect(look("text", folder.WriteFile("some.txt", "words"))[0], Level::kOk, "some.txt");
  // The image file ends early, as after an incomplete transfer.
  const std::string header("\0\0\x08\x03\0\0\0\x0a\0\0\0\x1c\0\0\0\x1c", 16);
  folder.WriteFile("train-images-idx3-ubyte", header + std::string(1000, 'x'));
  folder.WriteFile("train-labels-idx1-ubyte",
                   std::string("\0\0\x08\x01\0\0\0\x0a", 8) + std::string(10, '\0'));
  Expect(look("idx", folder.path(""))[0], Level::kProblem, "train-images-idx3-ubyte");
}

TEST(Doctor, WarnsBeforeCertificatesExpire) {
  const TestFolder folder;
  const absl::Time now = absl::FromUnixSeconds(1800000000);
  const std::string dir = folder.path("certs");
  Expect(CheckCertificates(dir, now)[0], Level::kProblem, dir);
  CertsRequest request;
  request.directory = dir;
  request.job = "tiny";
  request.validity = absl::Hours(24 * 30);
  request.now = now;
  std::ostringstream ignored;
  ASSERT_TRUE(MakeCertificates(request, ignored).ok());
  const std::vector<Finding> good = CheckCertificates(dir, now + absl::Hours(1));
  EXPECT_EQ(good.size(), 3u) << "for a server, a worker and an operator";
  for (const Finding& finding : good) Expect(finding, Level::kOk, "torchps://tiny/");
  for (const Finding& finding : CheckCertificates(dir, now + absl::Hours(24 * 28))) {
    Expect(finding, Level::kWarning, "valid until");
  }
  for (const Finding& finding : CheckCertificates(dir, now + absl::Hours(24 * 31))) {
    Expect(finding, Level::kProblem, "expired");
  }
}

TEST(Doctor, FindsUnsuitableLimitsAndClocks) {
  Expect(CheckOpenFiles(1024, 32), Level::kOk, "1024");
  Expect(CheckOpenFiles(64, 32), Level::kProblem, "a server needs 128");
  Expect(CheckCongestionControl("cubic"), Level::kOk, "cubic");
  Expect(CheckCongestionControl(""), Level::kOk, "cannot read TCP's congestion control");
  Expect(CheckCongestionControl("bbr"), Level::kWarning, "bbr, which paces");
  Expect(CheckSharedMemory(), Level::kOk, "works");
  Expect(CheckClock(0), Level::kProblem, "1970-01-01");
  Expect(CheckClock(1800000000), Level::kOk, "only certificates depend on it");
}

TEST(Doctor, PrintsAdviceAndExitCode) {
  const TestFolder folder;
  const auto run = [](std::vector<std::string> arguments, std::string* text) {
    const auto flags = FlagTable("psctl doctor", DoctorFlags()).Parse(arguments);
    EXPECT_TRUE(flags.ok()) << flags.status();
    std::ostringstream out;
    std::ostringstream error;
    const int code = DoctorCommand(*flags, out, error);
    *text = out.str();
    return code;
  };
  const std::string job = folder.WriteFile(
      "job.textproto",
      "name: 'tiny' model { name: 'mlp' } optimizer { sgd {} learning_rate: 0.1 }");
  std::string text;
  EXPECT_EQ(run({"--job=" + job, "--dir=" + folder.path("state")}, &text), 0) << text;
  EXPECT_TRUE(absl::StrContains(text, "ok       job: tiny: mlp on digits, 1 worker,")) << text;
  EXPECT_TRUE(absl::StrContains(text, "ok       a lost disk: would cost the whole job, ")) << text;
  EXPECT_TRUE(absl::StrContains(text, " 0 problems\n")) << text;
  EXPECT_EQ(run({"--job=digits", "--dir=" + folder.path("state")}, &text), 0) << text;
  run({"--job=" + job, "--set=durability.level=LOG", "--set=durability.copies=1",
       "--servers=127.0.0.1:1,127.0.0.1:2"},
      &text);
  EXPECT_TRUE(absl::StrContains(text, "a lost disk: would cost no acknowledged push: ")) << text;
  EXPECT_EQ(run({"--job=" + job, "--set=model.nme=mlp", "--device=gpu"}, &text), 1);
  EXPECT_TRUE(absl::StrContains(text, "PROBLEM  job: ")) << text;
  EXPECT_TRUE(absl::StrContains(text,
                                "          -> expected auto, cpu, cuda, cuda:INDEX, cuda:all, or a "
                                "list such as cuda:0,cuda:1\n"))
      << text;
  EXPECT_TRUE(absl::StrContains(text, " 2 problems\n")) << text;
  EXPECT_EQ(run({"--job=" + job, "--set=model.name=mpl", "--set=data.source=digit"}, &text), 1);
  EXPECT_TRUE(absl::StrContains(text,
                                "PROBLEM  job: job field model.name is \"mpl\"; did you mean "
                                "\"mlp\"? ps_worker has: "))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "did you mean \"digits\"?")) << text;
  const std::string own = folder.WriteScript("my_program", "");
  EXPECT_EQ(run({"--job=" + job, "--set=model.name=", "--worker_binary=" + own}, &text), 0);
  EXPECT_TRUE(absl::StrContains(text, "a model of your own on data of your own")) << text;
  EXPECT_TRUE(absl::StrContains(text, "the worker program provides them")) << text;
}

}  // namespace
}  // namespace torchps
