#include <google/protobuf/descriptor.h>

#include "gtest/gtest.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

TEST(VerdictCountsTest, CountsEachVerdictSeparately) {
  VerdictCounts counts;
  uint64_t verdicts = 0;
  const auto& all = *Verdict_descriptor();
  for (int i = 0; i < all.value_count(); ++i) {
    const auto verdict = static_cast<Verdict>(all.value(i)->number());
    // Initial values are not a gradient, so INITIALIZED has no count.
    if (verdict == VERDICT_UNSPECIFIED || verdict == INITIALIZED) continue;
    EXPECT_TRUE(Count(verdict, &counts)) << all.value(i)->name() << " has no count";
    EXPECT_EQ(Verdicts(counts), ++verdicts);
  }
  EXPECT_EQ(Applied(counts), 2u);
  EXPECT_EQ(counts.acknowledged() + counts.duplicates(), 0u) << "these are not verdicts";
  EXPECT_FALSE(Count(VERDICT_UNSPECIFIED, &counts));
  EXPECT_FALSE(Count(INITIALIZED, &counts));
  EXPECT_EQ(Verdicts(counts), verdicts);
}

TEST(VerdictCountsTest, SumsEveryField) {
  VerdictCounts part;
  const auto& fields = *VerdictCounts::descriptor();
  const auto& reflection = *VerdictCounts::GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    reflection.SetUInt64(&part, fields.field(i), 10 + static_cast<uint64_t>(i));
  }
  VerdictCounts sum = part;
  Add(part, &sum);
  for (int i = 0; i < fields.field_count(); ++i) {
    EXPECT_EQ(reflection.GetUInt64(sum, fields.field(i)), 2 * (10 + static_cast<uint64_t>(i)));
  }
}

}  // namespace
}  // namespace torchps
