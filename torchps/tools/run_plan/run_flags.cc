#include "torchps/tools/run_plan/run_flags.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "torchps/job/job_file.h"
#include "torchps/proto/job.pb.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/run_plan/built_in_jobs.h"

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
  return {
      {"job", "FILE",
       "The job: a file in text format (like those in deploy/jobs), YAML (.yaml) or JSON (.json), "
       "or a built-in job: digits, mnist, text. Required, except to resume a run on this machine, "
       "which uses job.textproto in --dir.",
       false, 0, "", BuiltInJobNames()},
      {"set", "PATH=VALUE", "Overrides one field of the job: --set=training.clip_norm=1.", true},
      {"epochs", "N", "Short for --set=training.epochs=N."},
      {"batch_size", "N", "Short for --set=training.batch_size=N."},
      {"optimizer", "NAME", "Short for --set=optimizer.kind=NAME, for example adam.", false, 0, "",
       OptimizerNames()},
      {"lr", "RATE", "Short for --set=optimizer.learning_rate=RATE."},
      {"seed", "N", "Short for --set=seed=N."},
      {"servers", "N", "Parameter servers on this machine. Default: 2."},
      {"workers", "N",
       "Workers on this machine; sets the job's `workers`. Default: the job's value."},
      {"data", "PATH", "Directory or file of the training data, instead of the job's data.path."},
      {"download", "",
       "Downloads MNIST first if it is missing: into --data or the job's data.path, otherwise into "
       "this machine's cache (TORCHPS_CACHE, XDG_CACHE_HOME or ~/.cache/torchps). With --hosts, "
       "each machine downloads its own copy."},
      {"mirrors", "URL,...",
       "With --download: web directories with the four files, instead of the public ones.", false,
       0, "download"},
      {"gpus", "N",
       "Runs one worker per worker machine on its first N GPUs, with a replica of the model on "
       "each; the worker pushes once for all of them.",
       false, 'g'},
      {"gpus_per_worker", "M",
       "With --gpus: GPUs per worker; 1 runs N workers with a GPU each. Default: N."},
      {"stages", "N",
       "Splits each worker into N processes on this machine, each with one stage of the model: an "
       "mlp, a transformer, or a torchps::Stages of your program. In a hosts file: 'worker "
       "HOST:PORT,HOST:PORT'."},
      {"device",
       "DEVICE",
       "The device of every worker: cpu, cuda or cuda:N. With several GPUs, 'cuda' selects a "
       "worker's GPU by its slot. A list such as cpu,cpu or cuda:0,cuda:1 puts a replica of the "
       "model on each device; 'auto' uses all GPUs of the machine, otherwise its CPU. Default: "
       "cpu.",
       false,
       0,
       "",
       {"cpu", "cuda", "auto"}},
      {"threads", "N",
       "Computing threads of each worker. Default: this machine's cores divided by the workers."},
      {"loader_threads", "N",
       "Threads of each worker that prepare batches in advance. Default: 0."},
      {"patience", "DURATION",
       "How long a worker retries a server that does not answer, for example 60s or 5m."},
      {"dir", "DIR",
       "The run's folder: model, report, logs and the servers' state; with --hosts, the folder of "
       "each server's state on its machine. Default: runs/NAME-TIME."},
      {"resume", "", "Continues the job whose state is in --dir."},
      {"dry_run", "",
       "Tries one batch of training and one of evaluation on this machine, without starting "
       "servers or making a folder."},
      {"restarts", "N",
       "How often a crashed server or worker is restarted within ten minutes; 0: never. Default: "
       "5."},
      {"target", "METRIC:VALUE",
       "Records when METRIC first reaches VALUE, for example accuracy:0.98 or loss:2.5: seconds "
       "since the start, samples used, pushes. The report and the output show it. A separate "
       "process measures it (docs/operate.md states the cost).",
       true},
      {"target_every", "DURATION",
       "The interval between these measurements. Without --target, the measurements only go to "
       "logs/evaluator.log. Default with --target: 5s."},
      {"report", "FILE",
       "The file for the report as JSON (docs/operate.md), written when the job ends. Default: "
       "report.json in the run's folder."},
      {"server_binary", "PATH", "The server program. Default: ps_server in psctl's folder."},
      {"worker_binary", "PATH",
       "The worker program, for example your own with its own model. Default: ps_worker in psctl's "
       "folder."},
      {"hosts", "FILE",
       "Runs the parts on other machines through ssh. The file contains lines 'server HOST[:PORT]' "
       "and 'worker HOST [slots=N | gpus=0,1]', or 'worker HOST:PORT,HOST:PORT [gpus=0,1]' with "
       "one stage of the model on each; # begins a comment."},
      {"ssh", "COMMAND", "The ssh command with its options. Default: 'ssh -o BatchMode=yes'."},
      {"remote_binary_dir", "PATH",
       "The folder of ps_server and ps_worker on the other machines. Default: as on this machine."},
      {"certs", "DIR",
       "Uses TLS everywhere: the directory that 'psctl certs' made, on every machine of the run."},
      {"insecure", "",
       "Lets servers listen beyond this machine's loopback without encryption. Use it only in a "
       "private network."},
      {"slow", "SLOT:FACTOR",
       "Makes one worker compute FACTOR times slower, like a slow machine: it sends each gradient "
       "only after the longer time, so the gradient is as stale as that machine's.",
       true},
  };
}

}  // namespace torchps
