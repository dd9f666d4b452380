#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace torchps {

// Of all streams that bring frames, which ones are read. Where sixteen are read in turns, frame by
// frame, each finds its memory pushed out of the caches by the others, at both ends; so a few hold
// a *place* each, for a *stint* of kStintBytes, and the others stand in line: first come, first
// served (bench/results/tuning.md has what that brings). Streams of one connection share a place,
// each with a stint of its own: they come one after the other anyway.
//
// Nobody waits for long for somebody who has little to send. Whose frame is late, or whose stint
// has lasted too long, loses its place and goes on without one; where nothing comes at all, the
// first in line is read as well; and where the thread that polls sleeps, everybody is.
//
//   if (places.Ask(&stint, bytes, connection, [call] { call->Read(); })) Read();
//   ... the frame is here:
//   places.Came(&stint);
//   ... it was the last one, or there will be none:
//   places.Leave(&stint);
//
// Thread-safe. A continuation runs on the thread that made it due, under no lock of this class.
// Invariants: the line is served in its order; nobody stands in it while a place is free.
class ReadPlaces {
 public:
  using Continuation = std::function<void()>;

  // How much of one stream is read before it is another one's turn.
  static constexpr int64_t kStintBytes = int64_t{16} << 20;
  // How long a frame may take. On a busy machine its sender may have to wait for a core for some
  // milliseconds, and where its place goes to another one, yet more of them want a core.
  static constexpr absl::Duration kPatience = absl::Milliseconds(8);
  // How long a stint may have a place: some six times what it takes on a loopback.
  static constexpr absl::Duration kLongestStint = absl::Milliseconds(32);
  // Of so much to come nobody waits for a single part.
  static constexpr int64_t kLongBytes = int64_t{4} << 20;
  // How long the thread that polls finds nothing before the first in line is read as well.
  static constexpr absl::Duration kIdle = absl::Milliseconds(1);

  // One stream's part in this. Owned by the stream, and touched by ReadPlaces only.
  class Stint {
   public:
    Stint() = default;
    Stint(const Stint&) = delete;
    Stint& operator=(const Stint&) = delete;

   private:
    friend class ReadPlaces;
    std::string connection;
    bool has_place = false;
    // What remains of it, also to one that has lost its place.
    int64_t left_bytes = 0;
    // What the stream brings until its end, with what it has asked for.
    int64_t to_come_bytes = 0;
    // When it loses its place, if the frame that it has asked for is not here by then; infinite:
    // none is on its way.
    absl::Duration late = absl::InfiniteDuration();
    absl::Duration longest = absl::InfiniteDuration();
  };

  // `clock` outlives this.
  ReadPlaces(int places, const Clock* clock) : places_(places), clock_(clock) {}

  // The stream is about to ask for a frame of at most `bytes`, and brings `to_come_bytes` from
  // there to its end; `connection` names what it comes by. True: it may. False: it stands in line,
  // and `go` runs when it may, perhaps before this returns. REQUIRES: it does not stand in line.
  bool Ask(Stint* stint, int64_t bytes, int64_t to_come_bytes, const std::string& connection,
           Continuation go);

  // What it asked for is here.
  void Came(Stint* stint);

  // It will ask for nothing more: gives up its place, or what it stood in line for, whose `go` will
  // not run. It may have neither.
  void Leave(Stint* stint);

  // Somebody stands in line, so the thread that polls has to look after the line now and then.
  bool waits() const;

  // Somebody who has a place brings kLongBytes or more: the thread that polls may take a nap.
  bool reads_long() const;

  // Passes on the places of those who were late when the queue was last asked, at `asked`; what has
  // come since may still be in it.
  void PassOn(absl::Duration asked);

  // The thread that polls has found nothing for kIdle.
  void NothingCame();

  // It is about to sleep. False: it may not, since somebody stands in line.
  bool BeginSleep();
  void EndSleep();

 private:
  struct InLine {
    Stint* stint;
    int64_t bytes;
    Continuation go;
  };

  bool HasPlaceFor(const Stint& stint) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Begin(Stint* stint, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Continue(Stint* stint, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpPlace(Stint* stint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the first out of the line, whose turn it is.
  Continuation ServeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All for whom there are places, in the line's order.
  std::vector<Continuation> Serve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t places_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  bool poller_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Stint*> holders_ ABSL_GUARDED_BY(mutex_);
  std::deque<InLine> line_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
