#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <new>

#include "gtest/gtest.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {
namespace {

#if !defined(TORCHPS_ASAN) && !defined(TORCHPS_TSAN)

// More bytes than the address space has.
constexpr size_t kTooMuch = size_t{1} << 46;

constexpr char kWords[] = "a_program: the system refuses this process more memory; it ends";

TEST(OutOfMemoryDeathTest, ReportsAFailedNew) {
  EXPECT_EXIT(
      {
        ReportOutOfMemory("a_program", "it ends");
        static_cast<void>(::operator new(kTooMuch));
      },
      testing::KilledBySignal(SIGABRT), kWords);
}

TEST(OutOfMemoryDeathTest, ReportsAnAbortAfterAFailedMalloc) {
  EXPECT_EXIT(
      {
        ReportOutOfMemory("a_program", "it ends");
        // gRPC aborts like this when malloc fails. The volatile size keeps the compiler from
        // removing the call.
        volatile size_t bytes = kTooMuch;
        if (std::malloc(bytes) == nullptr) std::abort();
      },
      testing::KilledBySignal(SIGABRT), kWords);
}

TEST(OutOfMemoryDeathTest, ReportsAWriteToAFailedAllocation) {
  EXPECT_EXIT(
      {
        ReportOutOfMemory("a_program", "it ends");
        volatile size_t bytes = kTooMuch;
        *static_cast<volatile char*>(std::malloc(bytes)) = 1;
      },
      testing::KilledBySignal(SIGSEGV), kWords);
}

TEST(OutOfMemoryDeathTest, IgnoresOtherFaults) {
  EXPECT_EXIT(
      {
        ReportOutOfMemory("a_program", "it ends");
        errno = 0;
        volatile char* volatile nowhere = nullptr;
        *nowhere = 1;
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

TEST(OutOfMemoryDeathTest, IgnoresOtherAborts) {
  EXPECT_EXIT(
      {
        ReportOutOfMemory("a_program", "it ends");
        errno = 0;
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "^$");
}

#endif

}  // namespace
}  // namespace torchps
