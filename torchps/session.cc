#include "torchps/session.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/job/local_steps.h"
#include "torchps/program/worker_program.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/finish_gradient.h"
#include "torchps/worker/loop/loop_hooks.h"
#include "torchps/worker/loop/simulated_slowdown.h"
#include "torchps/worker/slot/model_handover.h"
#include "torchps/worker/slot/worker_slot.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Evaluates a module with the program's function. Null: the worker does not evaluate.
class SessionHooks final : public ModelHandover {
 public:
  SessionHooks(torch::nn::Module* module, std::function<Evaluation()> evaluate,
               ModelHandover::Options options)
      : ModelHandover(std::move(options)), module_(*module), evaluate_(std::move(evaluate)) {}

  bool evaluates() const override { return evaluate_ != nullptr; }
  absl::Status Evaluate(EvaluationResult* result) override {
    const torch::NoGradGuard no_grad;
    const EvaluationMode evaluation(module_);
    SetEvaluation(evaluate_(), result);
    return absl::OkStatus();
  }

 private:
  torch::nn::Module& module_;
  const std::function<Evaluation()> evaluate_;
};

}  // namespace

// State after joining the job.
struct Session::Joined {
  Options options;
  const Clock* clock = nullptr;
  std::unique_ptr<LoopHooks> hooks;
  std::unique_ptr<WorkerSlot> slot;
  StepLoop* loop = nullptr;
  std::optional<SimulatedSlowdown> handicap;
  // The current step and the time it began. `in_hand` is true until the step is pushed.
  StepWork work;
  absl::Duration taken_at;
  bool in_hand = false;
  // True if Next() reported that the job is done.
  bool is_done = false;
};

Session::Session(JobSpec job, std::function<absl::StatusOr<WorkerOptions>()> connect)
    : job_(std::move(job)), connect_(std::move(connect)) {}

Session::~Session() { Leave().IgnoreError(); }

const JobSpec& Session::job() const { return joined_ == nullptr ? job_ : joined_->slot->job(); }

void Session::Join(torch::nn::Module& module, Options options) {
  Guard("joining the job", [&]() -> absl::Status {
    if (joined_ != nullptr) return absl::FailedPreconditionError("the session has joined already");
    if (options.samples < 1) {
      return absl::InvalidArgumentError(absl::StrCat("Session::Options::samples is ",
                                                     options.samples,
                                                     "; expected the number of samples per epoch"));
    }
    absl::StatusOr<WorkerOptions> worker = connect_();
    if (!worker.ok()) return worker.status();
    if (!worker->further_devices.empty()) {
      return absl::InvalidArgumentError(
          "a program with its own training loop uses one device; set one --device, and start a "
          "worker for each other device");
    }
    if (worker->stage >= 0) {
      return absl::InvalidArgumentError(
          "a program with its own training loop holds the whole model; leave out --stage and "
          "--replica (torchps/train.h supports them)");
    }
    const TrainingSpec::Precision precision = job_.training().precision();
    if (precision == TrainingSpec::BFLOAT16 || precision == TrainingSpec::FLOAT16) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job field training.precision is ", TrainingSpec::Precision_Name(precision),
          ", but a program with its own training loop must cast itself; expected FLOAT32 or TF32"));
    }
    worker->copies_whole_gradients = true;
    auto joined = std::make_unique<Joined>();
    joined->options = std::move(options);
    joined->clock = worker->clock;
    absl::StatusOr<std::unique_ptr<WorkerSlot>> slot = WorkerSlot::Join(
        module, {joined->options.samples, joined->options.data, {}}, *std::move(worker));
    if (!slot.ok()) return slot.status();
    joined->slot = *std::move(slot);
    if (HasLocalSteps(joined->slot->job())) {
      const absl::Status refused = absl::InvalidArgumentError(
          "the job has local steps, but a program with its own training loop does not support "
          "them; leave out `local`, or use torchps's loop (torchps/train.h)");
      return joined->slot->Leave(refused);
    }

    BeginTraining(module);
    joined->hooks = std::make_unique<SessionHooks>(&module, joined->options.evaluate,
                                                   joined->slot->HandoverOptions());
    // Prefetching would not help: Next() waits for the push before it pulls, and the caller
    // computes the next gradient after Next(). So a pull cannot overlap with computing.
    joined->loop = joined->slot->MakeLoop(joined->hooks.get(), /*may_prefetch=*/false);
    joined->handicap.emplace(joined->slot->MakeHandicap());
    joined_ = std::move(joined);
    return absl::OkStatus();
  });
}

bool Session::Next() {
  bool more = false;
  Guard("taking the next step", [&]() -> absl::Status {
    if (joined_ == nullptr) return absl::FailedPreconditionError("call Join() before Next()");
    if (joined_->in_hand) return absl::FailedPreconditionError("call Push() before Next()");
    const ProgressTimer::Rest rest(joined_->slot->pulse());
    if (absl::Status status = joined_->loop->FinishPush(); !status.ok()) return status;
    const absl::StatusOr<std::optional<StepWork>> work = joined_->loop->Next();
    if (!work.ok()) return work.status();
    joined_->is_done = !work->has_value();
    if (joined_->is_done) return absl::OkStatus();
    joined_->work = **work;
    if (absl::Status status = joined_->slot->BeginGradient(); !status.ok()) return status;
    joined_->taken_at = joined_->clock->Now();
    joined_->in_hand = more = true;
    return absl::OkStatus();
  });
  return more;
}

void Session::Push(const torch::Tensor& loss) {
  Guard("pushing a gradient", [&]() -> absl::Status {
    if (joined_ == nullptr || !joined_->in_hand) {
      return absl::FailedPreconditionError("call Push() once after each Next()");
    }
    joined_->in_hand = false;
    if (!loss.defined() || loss.numel() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("Push() got a loss of ", loss.defined() ? loss.numel() : 0,
                       " elements; expected one: the mean over the step's samples"));
    }
    if (absl::Status status = joined_->slot->model()->CheckUnchanged(); !status.ok()) return status;
    const absl::StatusOr<Finite> finite = FinishGradient(job().training(), joined_->slot->model());
    if (!finite.ok()) return finite.status();
    StepLoop::Outcome outcome;
    outcome.samples = static_cast<int64_t>(joined_->work.samples.size());
    outcome.loss_sum = loss.item<double>() * static_cast<double>(outcome.samples);
    outcome.not_finite = *finite == Finite::kNo;
    outcome.absent = joined_->slot->AbsentElements();
    outcome.compute_time = joined_->clock->Now() - joined_->taken_at;
    outcome.compute_time += joined_->handicap->Hold(
        outcome.samples, /*data_time=*/absl::ZeroDuration(), outcome.compute_time);
    if (absl::Status status = joined_->loop->BeginTransfers(outcome.samples); !status.ok()) {
      return status;
    }
    joined_->loop->EndStep(std::move(outcome));
    return absl::OkStatus();
  });
}

absl::Span<const int64_t> Session::samples() const {
  return joined_ == nullptr ? absl::Span<const int64_t>() : joined_->work.samples;
}
int Session::epoch() const { return joined_ == nullptr ? 0 : joined_->work.epoch; }
int64_t Session::step() const { return joined_ == nullptr ? 0 : joined_->work.number; }
int Session::slot() const { return joined_ == nullptr ? -1 : joined_->slot->slot(); }
torch::Device Session::device() const {
  return joined_ == nullptr ? torch::Device(torch::kCPU) : joined_->slot->model()->device();
}

absl::Status Session::Leave() {
  if (joined_ != nullptr) {
    job_ = job();
    // If the loop ended before the job, the session did not fail, but the servers must not wait for
    // the slot.
    const absl::Status early = absl::CancelledError("the program's loop has ended before the job");
    const bool is_early = status_.ok() && !joined_->is_done;
    const absl::Status left = joined_->slot->Leave(is_early ? early : status_);
    if (!is_early || left != early) status_ = left;
    joined_.reset();
  }
  return status_;
}

void Session::Fail(const absl::Status& error) {
  if (status_.ok()) status_ = error;
}

void Session::Guard(const char* what, const std::function<absl::Status()>& run) {
  if (!status_.ok()) return;
  try {
    status_ = run();
  } catch (...) {
    status_ = ThrownError(what);
  }
}

int SessionMain(int argc, char** argv, const std::function<void(Session& session)>& loop) {
  WorkerProgram program;
  program.train = [&loop](const JobSpec& job, const Connect& connect) {
    Session session(job, connect);
    try {
      loop(session);
    } catch (...) {
      session.Fail(ThrownError("the program's loop"));
    }
    return session.Leave();
  };
  return RunWorkerProgram(argc, argv, program);
}

}  // namespace torchps
