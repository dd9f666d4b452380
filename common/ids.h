#pragma once

#include <cstdint>

// The words of the system, each with one meaning everywhere (docs/architecture.md, "Terms").

namespace torchps {

// A logical data-parallel worker, numbered from 0. A process holds a slot.
using SlotId = int32_t;

// Which life of a slot: rises every time a process takes the slot over. 0 is none.
using Incarnation = uint64_t;

// A job that is resumed as a whole gives out incarnations that are so far above all that it had
// given out before, and a coordinator that merely comes back far less. So two of them, or one and
// what a checkpoint says was to be given out next, tell whether they belong to one course of the
// job.
inline constexpr Incarnation kResumeGap = Incarnation{1} << 40;
inline constexpr bool IsOfLaterGeneration(Incarnation incarnation, Incarnation earlier) {
  return incarnation >= earlier + kResumeGap / 2;
}

// A slot's own count of pushes, from 1. A push is named (slot, step).
using Step = int64_t;

// How many gradients were applied to a block.
using Version = int64_t;

// In PullRequest.have_version: the worker does not want this block.
inline constexpr Version kUnwantedBlock = -2;

// Index of a block in the BlockMap.
using BlockId = uint32_t;

// Worker and server refuse each other when these differ. Raised with every change of proto/ that
// an older program would misread.
inline constexpr uint32_t kProtocolVersion = 8;

// Slots are small numbers, so that per-block ledgers can be arrays. A limit that no cluster of
// parameter servers reaches, and that keeps a forged slot number from costing memory.
inline constexpr SlotId kMaxSlots = 4096;

}  // namespace torchps
