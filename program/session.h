#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "worker/evaluation.h"

// For a training loop of one's own: several losses, several modules, data that is made while
// training. Where a loss of a batch's output and target is all there is, TrainMain is shorter
// (program/train.h).
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

// A worker of a job, driven by its caller: joined with one module, which may hold several. Each
// turn of the loop is a step: Next() pulls the values that the module is to compute with, the
// caller's backward() leaves the gradient in the module's parameters, Push() sends it. The servers
// have the optimizer: the loop has none.
//
// What fails is kept: every later call does nothing, Next() returns false, and status() tells. So a
// loop needs no error handling of its own, and SessionMain prints the sentence.
//
// Thread-compatible: used by the thread that SessionMain gives it to. Borrows the module, from
// Join() on; the module's parameters may be neither moved, replaced nor unfrozen then.
class Session {
 public:
  struct Options {
    // Samples of an epoch: what training.epochs counts and the report's samples are. A loop that
    // makes its own data says how much of it an epoch is. At least 1.
    int64_t samples = 0;
    // One line about the data, for the report.
    std::string data = {};
    // What the module is worth on a test set; called after an epoch, in one of the workers, with
    // the module in evaluation mode and as the servers have it. Null: no evaluation, and no best
    // model.
    std::function<Evaluation()> evaluate = nullptr;
  };

  // SessionMain's.
  Session(JobSpec job, std::function<absl::StatusOr<WorkerOptions>()> connect);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The job as its file and the flags say; once joined, as the coordinator has completed it.
  const JobSpec& job() const;

  // Joins the job with `module`, on the device of --device: from here on its parameters and buffers
  // are there (device()). Also seeds torch's generator, so that each worker draws numbers of its
  // own: data that all workers are to have in common are drawn before.
  void Join(torch::nn::Module& module, Options options);

  // Takes the next step: the module holds the values to compute with, its gradients are zero. False
  // once the job is done, is to stop, or something failed. Blocks while the staleness bound says
  // so, and until the latest push is acknowledged. On a GPU the values are there for what is
  // computed on the stream that is current here; another one has to wait for it, and Push() for
  // that (docs/gpus.md, "What happens to one step").
  bool Next();

  // Pushes what backward() has left in the gradients, which are not to be used after that. `loss`
  // is for the report: the mean over the step's samples. A gradient that is not finite is dealt
  // with as training.nonfinite says. REQUIRES: Next() was true, and this is the first Push() after
  // it.
  void Push(const torch::Tensor& loss);

  // OK while nothing has failed, and after the job is done. CANCELLED: told to stop.
  const absl::Status& status() const { return status_; }

  // Of a session that has not joined, since that has failed say: no samples, 0, slot -1, the CPU.

  // Of the step that Next() has taken. samples() are indices from 0 to Options::samples - 1, at
  // most batch_size * accumulate: a share of the epoch that no other worker has.
  absl::Span<const int64_t> samples() const;
  int epoch() const;     // from 1
  int64_t step() const;  // this worker's, from 0
  // This worker's slot, from 0; a seed for draws of one's own.
  int slot() const;
  torch::Device device() const;

  // What SessionMain does at the end: leaves the job, which may not be done yet: the others go on
  // without this worker. Returns status().
  absl::Status Leave();
  // What SessionMain does first where the loop throws: this is why the worker leaves, if nothing
  // has failed before.
  void Fail(const absl::Status& error);

 private:
  struct Joined;

  // Runs torch's and the caller's code, which may throw.
  void Guard(const char* what, const std::function<absl::Status()>& run);

  JobSpec job_;
  std::function<absl::StatusOr<WorkerOptions>()> connect_;
  absl::Status status_;
  std::unique_ptr<Joined> joined_;
};

// The main function of a program with a loop of its own: flags, signals and exit code as
// TrainMain's. Until `loop` joins, a signal ends the process at once, and cuts short what it
// writes. What `loop` throws is an error of the program.
int SessionMain(int argc, char** argv, const std::function<void(Session& session)>& loop);

}  // namespace torchps
