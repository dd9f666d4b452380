#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/block_buffer.h"
#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"

namespace torchps {

// The blocks of one server out of a checkpoint that any number of servers has written: its newest
// one of which everything needed is there and undamaged.
//
// Blocks that are cut otherwise than the checkpoint's are put together by element; then a block's
// version, and each slot's entry in its ledger, are the highest of the old blocks that it overlaps.
// That is safe because only a whole job is resumed on another number of servers, when no worker has
// a push under way.
//
// Thread-compatible.
class Restore {
 public:
  struct Request {
    std::string directory;
    uint64_t job_id = 0;
    const ModelLayout* layout = nullptr;  // needed during Open only
    const BlockMap* blocks = nullptr;     // needed during Open only
    int server_index = 0;
    // Above 0: the whole job was resumed from this checkpoint, and `incarnation` is one that it has
    // given out since. Then no other checkpoint will do but one that the job has taken since, or
    // the blocks of two servers would not belong together.
    uint64_t resumed_checkpoint = 0;
    Incarnation incarnation = 0;
  };

  // Reads and checks every shard that is needed. `files` must outlive the result.
  //   NOT_FOUND            there is no checkpoint: the server begins anew
  //   FAILED_PRECONDITION  the directory is of another job, or another model
  //   DATA_LOSS            there are checkpoints and none can be loaded, with all reasons; or none
  //                        that the job was resumed from
  static absl::StatusOr<std::unique_ptr<Restore>> Open(FileSystem* files, const Request& request);

  const Manifest& manifest() const { return reader_->manifest(); }
  uint64_t checkpoint() const { return manifest().checkpoint(); }
  // Why newer checkpoints were not taken, a sentence each; empty if this is the newest.
  const std::vector<std::string>& passed_over() const { return passed_over_; }
  // Arrays of the optimizer that every trained block has.
  int slots() const { return reader_->slots(); }

  // The blocks of the server, in ascending order; block i of them into `out`, whose room is used
  // again. DATA_LOSS: the disk gives something else than it gave to Open.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  absl::Status ReadBlock(size_t i, BlockBuffer* out);

 private:
  Restore(std::unique_ptr<CheckpointReader> reader, std::vector<BlockRange> blocks,
          std::vector<std::string> passed_over);

  const std::unique_ptr<CheckpointReader> reader_;
  const std::vector<BlockRange> blocks_;
  const std::vector<std::string> passed_over_;
  BlockBuffer old_;  // for blocks that are cut otherwise
};

}  // namespace torchps
