#include "torchps/common/process/found_functions.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

TEST(FoundFunctionsTest, FindsAFunctionInTheProcess) {
  size_t (*length)(const char*) = nullptr;
  FoundFunctions process = FoundFunctions::InProcess("the C library");
  process.Find("strlen", &length);
  ASSERT_EQ(process.status(), absl::OkStatus());
  ASSERT_NE(length, nullptr);
  EXPECT_EQ(length("five!"), 5u);
}

TEST(FoundFunctionsTest, FindsAFunctionInALibrary) {
  absl::StatusOr<FoundFunctions> library = FoundFunctions::Load("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  double (*floor)(double) = nullptr;
  library->Find("floor", &floor);
  ASSERT_EQ(library->status(), absl::OkStatus());
  EXPECT_EQ(floor(3.5), 3.0);
}

TEST(FoundFunctionsTest, StatusNamesTheFirstMissingFunction) {
  size_t (*length)(const char*) = nullptr;
  void (*missing)() = [] {};
  FoundFunctions process = FoundFunctions::InProcess("the C library");
  process.Find("torchps_has_no_such_function", &missing);
  process.Find("torchps_has_no_other_one", &missing);
  process.Find("strlen", &length);
  EXPECT_EQ(missing, nullptr);
  EXPECT_NE(length, nullptr);
  EXPECT_EQ(process.status(),
            absl::UnavailableError("the C library has no torchps_has_no_such_function"));
}

TEST(FoundFunctionsTest, ErrorNamesAMissingLibrary) {
  const absl::Status status = FoundFunctions::Load("libtorchps_none.so.7").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("libtorchps_none.so.7"));
}

}  // namespace
}  // namespace torchps
