#pragma once

#include <vector>

// Orders the work of the stages on the parts of a batch: one forward, one backward (Narayanan et
// al. 2019, "PipeDream"; 2021, the flushed form in Megatron-LM). Free functions without state.

namespace torchps {

// Describes one pass of a stage with one micro-batch.
struct PipelineStep {
  bool forward = true;  // false: backward
  int micro_batch = 0;
};

// Returns all passes of stage `stage` of `stages` with `micro_batches` micro-batches, in order. The
// stage begins with as many forward passes as there are later stages. Then backward and forward
// passes alternate, and the remaining backward passes follow. Micro-batches are processed in order
// in both directions.
//
// The stage holds a micro-batch's activations from the forward pass to the backward pass, for at
// most `stages - stage` micro-batches at a time. If each forward pass needs time f and each
// backward pass time b, the total is (micro_batches + stages - 1) * (f + b). So filling and
// draining cost `stages - 1` turns.
//
// REQUIRES: 0 <= stage < stages, micro_batches >= 1.
std::vector<PipelineStep> OneForwardOneBackward(int stage, int stages, int micro_batches);

}  // namespace torchps
