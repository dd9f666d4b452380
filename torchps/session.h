#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/evaluation.h"

// Runs a custom training loop: with several losses, several modules, or data that are generated
// during training. If the loss depends only on a batch's output and target, a program with
// TrainMain is shorter (torchps/train.h).
//
//   int main(int argc, char** argv) {
//     return torchps::SessionMain(argc, argv, [](torchps::Session& session) {
//       auto net = std::make_shared<Net>();
//       session.Join(*net, {/*samples=*/10000});
//       while (session.Next()) {
//         torch::Tensor loss = GetLoss(*net, session.samples());
//         loss.backward();
//         session.Push(loss);
//       }
//     });
//   }

namespace torchps {

struct WorkerOptions;

// Represents a job's worker that the caller drives. It joins with one module, which may contain
// several modules. Each loop iteration is a step: Next() pulls the values, the caller's backward()
// computes the gradient in the module's parameters, and Push() sends it. The servers run the
// optimizer, so the loop does not contain one.
//
// The session keeps the first error: later calls do not do anything, Next() returns false, and
// status() returns the error. So a loop does not need error handling, and SessionMain prints the
// error.
//
// Thread-compatible: used by the thread that runs the loop. Borrows the module from Join() on; the
// module's parameters must not be moved, replaced or unfrozen after that.
class Session {
 public:
  // Describes the loop to the job.
  struct Options {
    // Samples per epoch. training.epochs and the report count epochs of this size. A loop that
    // generates data chooses the epoch size. At least 1.
    int64_t samples = 0;
    // Describes the data in one line, for the report.
    std::string data = {};
    // Evaluates the module on a test set. Called after an epoch, in one of the workers, with the
    // servers' values and in evaluation mode. Null: no evaluation and no best model.
    std::function<Evaluation()> evaluate = nullptr;
  };

  // Used by SessionMain. Join() calls `connect` for the worker's options.
  Session(JobSpec job, std::function<absl::StatusOr<WorkerOptions>()> connect);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The job from the job file and the flags; after joining, as the coordinator completed it.
  const JobSpec& job() const;

  // Joins the job with `module`. Moves the module's parameters and buffers to the device in
  // --device (device()). Also seeds torch's generator differently in each worker. So if all workers
  // need the same random data, draw them before this call.
  void Join(torch::nn::Module& module, Options options);

  // Begins the next step: pulls the values into the module and sets the gradients to zero. Returns
  // false if the job is done, was stopped, or failed. Blocks until the latest push is acknowledged
  // and the staleness bound permits the step. On a GPU, the values are ready for work on the
  // current stream. Another stream must wait for this stream, and Push() must wait for the other
  // stream (docs/gpus.md, "What happens to one step").
  bool Next();

  // Pushes the gradients that backward() computed. The caller must not use them after that. `loss`
  // is the mean over the step's samples, for the report. training.nonfinite determines the handling
  // of a non-finite gradient. REQUIRES: Next() returned true, and Push() was not called since.
  void Push(const torch::Tensor& loss);

  // The first error. OK if all calls succeeded, also after the job is done. CANCELLED: stopped.
  const absl::Status& status() const { return status_; }

  // The functions below describe the step that Next() began. If the session did not join because of
  // an error, they return: no samples, epoch 0, step 0, slot -1, the CPU.

  // Indices from 0 to Options::samples - 1, at most batch_size * accumulate of them. Other workers
  // do not get these samples in this epoch.
  absl::Span<const int64_t> samples() const;
  int epoch() const;     // from 1
  int64_t step() const;  // this worker's step, from 0
  // This worker's slot, from 0. May seed the caller's random numbers.
  int slot() const;
  // The device of --device, which holds the module.
  torch::Device device() const;

  // Leaves the job, and returns status(). If the job is not done, the other workers continue
  // without this worker. Called by SessionMain at the end.
  absl::Status Leave();
  // Records `error` as the reason for leaving, unless an earlier call failed. If the loop throws,
  // SessionMain calls this function before Leave().
  void Fail(const absl::Status& error);

 private:
  struct Joined;

  // Calls `run`, unless the session has failed, and records its error or exception.
  void Guard(const char* what, const std::function<absl::Status()>& run);

  JobSpec job_;
  std::function<absl::StatusOr<WorkerOptions>()> connect_;
  absl::Status status_;
  std::unique_ptr<Joined> joined_;
};

// The main function of a program with a custom loop. Flags, signals and exit code are as in
// TrainMain. Until `loop` joins, a signal ends the process immediately, and files that it writes
// may be incomplete. An exception in `loop` is an error of the program.
int SessionMain(int argc, char** argv, const std::function<void(Session& session)>& loop);

}  // namespace torchps
