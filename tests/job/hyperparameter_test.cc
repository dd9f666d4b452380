#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "torchps/job/job_difference.h"
#include "torchps/job/job_file.h"
#include "torchps/job/optimizer_fields.h"

namespace torchps {
namespace {

JobSpec JobWith(const std::string& name, const std::string& value) {
  JobSpec job;
  EXPECT_TRUE(ApplyOverride(&job, "hyperparameter." + name + "=" + value).ok());
  return job;
}

TEST(HyperparameterTest, ReadsTheRequestedType) {
  EXPECT_EQ(*Hyperparameter(JobWith("width", "64"), "width", 32), 64);
  EXPECT_EQ(*Hyperparameter(JobWith("n", "5000000000"), "n", int64_t{0}), 5000000000);
  EXPECT_EQ(*Hyperparameter(JobWith("rate", "1e-3"), "rate", 0.5), 1e-3);
  EXPECT_EQ(*Hyperparameter(JobWith("deep", "yes"), "deep", false), true);
  EXPECT_EQ(*Hyperparameter(JobWith("kind", "a=b c"), "kind", std::string("x")), "a=b c");
}

TEST(HyperparameterTest, ReturnsTheDefaultIfMissing) {
  EXPECT_EQ(*Hyperparameter(JobSpec(), "width", 32), 32);
  EXPECT_EQ(*Hyperparameter(JobWith("width.of.head", "8"), "width", 32), 32);
  EXPECT_EQ(*Hyperparameter(JobWith("width.of.head", "8"), "width.of.head", 32), 8);
}

TEST(HyperparameterTest, ErrorNamesTheValueAndTheExpectedType) {
  EXPECT_EQ(
      Hyperparameter(JobWith("width", "wide"), "width", 32).status(),
      absl::InvalidArgumentError("hyperparameter.width is \"wide\"; expected a whole number"));
  EXPECT_EQ(Hyperparameter(JobWith("rate", "fast"), "rate", 0.5).status().message(),
            "hyperparameter.rate is \"fast\"; expected a number");
}

TEST(HyperparameterTest, RejectsNonfiniteNumbers) {
  for (const std::string value : {"nan", "inf", "-inf", "1e999", "-1e999"}) {
    EXPECT_EQ(Hyperparameter(JobWith("rate", value), "rate", 0.5).status().message(),
              "hyperparameter.rate is \"" + value + "\"; expected a finite number");
    EXPECT_FALSE(Hyperparameter(JobWith("rate", value), "rate", 0.5f).ok()) << value;
  }
  EXPECT_EQ(*Hyperparameter(JobWith("rate", "-1e300"), "rate", 0.5), -1e300);
  EXPECT_FALSE(Hyperparameter(JobWith("rate", "-1e300"), "rate", 0.5f).ok());
  EXPECT_EQ(*Hyperparameter(JobWith("rate", "1e38"), "rate", 0.5f), 1e38f);
}

TEST(HyperparameterTest, AnOverrideReplacesTheValue) {
  JobSpec job = JobWith("width", "64");
  EXPECT_TRUE(ApplyOverride(&job, "hyperparameter.width=128").ok());
  EXPECT_TRUE(ApplyOverride(&job, "hyperparameter.depth=2").ok());
  EXPECT_EQ(job.hyperparameter_size(), 2);
  JobSpec other = JobWith("depth", "2");
  EXPECT_EQ(CheckSameJob(job, other, "this", "that").message(),
            "the jobs differ in hyperparameter.width: this has \"128\", that has no value");
  EXPECT_TRUE(ApplyOverride(&other, "hyperparameter.width=128").ok());
  EXPECT_TRUE(CheckSameJob(job, other, "this", "that").ok());
}

}  // namespace
}  // namespace torchps
