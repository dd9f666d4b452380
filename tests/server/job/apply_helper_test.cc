#include "torchps/server/job/apply_helper.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(ApplyHelperTest, RunsEveryPieceOnceBeforeReturning) {
  ApplyHelper helper;
  for (size_t pieces = 0; pieces < 200; ++pieces) {
    std::vector<std::atomic<int>> done(pieces);
    helper.Run(pieces, [&](size_t piece) { ++done[piece]; });
    for (const auto& times : done) ASSERT_EQ(times.load(), 1) << "of " << pieces;
  }
}

TEST(ApplyHelperTest, ConcurrentCallersEachGetAllTheirPieces) {
  ApplyHelper helper;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int run = 0; run < 300; ++run) {
        std::vector<std::atomic<int>> done(7);
        helper.Run(7, [&](size_t piece) { ++done[piece]; });
        for (const auto& times : done) EXPECT_EQ(times.load(), 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ApplyHelperTest, TheHelperThreadRunsPiecesInParallel) {
  ApplyHelper helper;
  const std::thread::id caller = std::this_thread::get_id();
  // The caller's piece ends only after the helper has started the other piece.
  std::atomic<bool> helped{false};
  helper.Run(2, [&](size_t) {
    if (std::this_thread::get_id() != caller) {
      helped.store(true);
      return;
    }
    while (!helped.load()) std::this_thread::yield();
  });
  EXPECT_TRUE(helped.load());
}

}  // namespace
}  // namespace torchps
