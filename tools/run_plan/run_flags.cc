#include "tools/run_plan/run_flags.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/job_override.h"
#include "proto/job.pb.h"
#include "tools/base/format.h"
#include "tools/run_plan/built_in_jobs.h"
#include "tools/run_plan/handicaps.h"

namespace torchps {
namespace {

// Flags that set one field of the job.
struct ShortForm {
  const char* flag;
  const char* field;
};
constexpr ShortForm kShortForms[] = {{"epochs", "training.epochs"},
                                     {"batch_size", "training.batch_size"},
                                     {"optimizer", "optimizer.kind"},
                                     {"lr", "optimizer.learning_rate"},
                                     {"seed", "seed"}};

bool IsShortForm(const std::string& flag) {
  return std::any_of(std::begin(kShortForms), std::end(kShortForms),
                     [&flag](const ShortForm& form) { return flag == form.flag; });
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  const auto& kind = *OptimizerSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kind.field_count(); ++i) names.push_back(kind.field(i)->name());
  return names;
}

}  // namespace

std::string RunFlagFor(absl::string_view field) {
  const std::string set = SetFlagFor(field);
  for (const ShortForm& form : kShortForms) {
    if (set == absl::StrCat("--set=", form.field, "=VALUE")) return absl::StrCat("--", form.flag);
  }
  return set;
}

std::vector<std::string> Assignments(const FlagValues& flags) {
  std::vector<std::string> assignments = flags.All("set");
  for (const ShortForm& form : kShortForms) {
    if (flags.Has(form.flag)) {
      assignments.push_back(absl::StrCat(form.field, "=", flags.Get(form.flag)));
    }
  }
  return assignments;
}

std::string FlagsAgain(const FlagValues& flags) {
  std::string words;
  for (const FlagSpec& flag : RunFlags()) {
    const std::string& name = flag.name;
    if (name == "job" || name == "set" || name == "workers" || name == "dir" || name == "resume" ||
        IsShortForm(name)) {
      continue;
    }
    for (const std::string& value : flags.All(name)) {
      const std::string word = absl::StrCat("--", name, value.empty() ? "" : "=", value);
      absl::StrAppend(&words, " ", ShellQuoted(word));
    }
  }
  return words;
}

std::vector<FlagSpec> RunFlags() {
  std::vector<FlagSpec> flags = {
      {"job", "FILE",
       "The job: a file in text format, as those in deploy/jobs, in YAML (.yaml) or in JSON "
       "(.json), or the name of one that psctl "
       "brings along: digits, mnist, text. Required, but for --resume of a run on this machine, "
       "which takes job.textproto of --dir.",
       false, 0, "", BuiltInJobNames()},
      {"set", "PATH=VALUE", "Overrides one field of the job: --set=training.clip_norm=1.", true},
      {"epochs", "N", "Short for --set=training.epochs=N."},
      {"batch_size", "N", "Short for --set=training.batch_size=N."},
      {"optimizer", "NAME", "Short for --set=optimizer.kind=NAME, as adam.", false, 0, "",
       OptimizerNames()},
      {"lr", "RATE", "Short for --set=optimizer.learning_rate=RATE."},
      {"seed", "N", "Short for --set=seed=N."},
      {"servers", "N", "Parameter servers on this machine. Default 2."},
      {"workers", "N", "Workers on this machine; sets the job's `workers`. Default: the job's."},
      {"data", "PATH", "Directory or file of the training data, in place of the job's data.path."},
      {"download", "",
       "Fetches MNIST first, where it is not there yet: into --data or the job's data.path, else "
       "into this machine's cache (TORCHPS_CACHE, XDG_CACHE_HOME or ~/.cache/torchps). With "
       "--hosts each machine fetches its own."},
      {"mirrors", "URL,...",
       "With --download: directories of the web that hold its four files, instead of public ones.",
       false, 0, "download"},
      {"gpus", "N",
       "On each worker's machine one worker that computes on its first N GPUs, with a replica of "
       "the model on each, and pushes once for all of them.",
       false, 'g'},
      {"gpus_per_worker", "M",
       "With --gpus: a worker for every M of them; 1: N workers with a GPU each. Default: N."},
      {"stages", "N",
       "Each worker is N processes on this machine, each of which holds a stage of the model and "
       "no more: an mlp, a transformer, or a torchps::Stages of your program. In a hosts file: "
       "'worker HOST:PORT,HOST:PORT'."},
      {"device",
       "DEVICE",
       "cpu, cuda or cuda:N, passed to every worker. Of several GPUs, 'cuda' gives each worker the "
       "one of its slot. Several, with a comma between, have a replica of the model each: cpu,cpu "
       "or cuda:0,cuda:1; 'auto': all GPUs of the machine, else its CPU. Default cpu.",
       false,
       0,
       "",
       {"cpu", "cuda", "auto"}},
      {"threads", "N",
       "Computing threads of each worker. Default: this machine's cores divided by the workers."},
      {"loader_threads", "N",
       "Threads of each worker that prepare its batches ahead of its computing. Default 0."},
      {"patience", "DURATION",
       "How long a worker goes on asking a server that does not answer, as 60s or 5m."},
      {"dir", "DIR",
       "The run's folder: model, report, logs, and what servers keep to come back; with --hosts "
       "what each server keeps on its machine. Default: runs/NAME-TIME."},
      {"resume", "", "Goes on with the job whose state is in --dir."},
      {"dry_run", "",
       "Tries one batch of training and one of evaluation on this machine, and ends: no server "
       "starts, and no folder is made."},
      {"restarts", "N",
       "How often within ten minutes a server or worker that dies is started again; 0: never. "
       "Default 5."},
      {"target", "METRIC:VALUE",
       "Notes when what is learnt first reaches VALUE of METRIC, as accuracy:0.98 or loss:2.5, in "
       "the report and on a line: seconds since the start, samples used, pushes. A process of its "
       "own measures it (docs/operate.md says what that costs).",
       true},
      {"target_every", "DURATION",
       "How often that process measures; without --target it measures all the same, into "
       "logs/evaluator.log. Default with --target: 5s."},
      {"report", "FILE",
       "Writes the report as JSON (docs/operate.md) when the job has ended. Default: report.json in "
       "the run's folder."},
      {"server_binary", "PATH", "The server program. Default: ps_server beside psctl."},
      {"worker_binary", "PATH",
       "The worker program, for instance your own with its own model. Default: ps_worker beside "
       "psctl."},
      {"hosts", "FILE",
       "Runs the parts on other machines through ssh. Lines are 'server HOST[:PORT]' and "
       "'worker HOST [slots=N | gpus=0,1]', or 'worker HOST:PORT,HOST:PORT [gpus=0,1]' with a "
       "stage of the model on each; # begins a comment."},
      {"ssh", "COMMAND", "The ssh command with its options. Default 'ssh -o BatchMode=yes'."},
      {"remote_binary_dir", "PATH",
       "Where ps_server and ps_worker lie on the other machines. Default: as on this one."},
      {"certs", "DIR",
       "Speaks TLS everywhere: the directory that 'psctl certs' made, on every machine of the "
       "run."},
      {"insecure", "",
       "Lets servers listen beyond this machine's loopback without encryption. Only in a network "
       "that is yours alone."},
  };
  for (FlagSpec& flag : HandicapFlags()) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace torchps
