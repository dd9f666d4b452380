#include "torchps/tools/model_command.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/common/process/command_line.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/export_command.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/run_folder/run_record.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

// Flags of `psctl generate`; in the worker program their names begin with generate_.
constexpr const char* kSamplingFlags[] = {"prompt", "length", "temperature", "top_k", "seed"};

int Fail(const std::string& sentence, ExitCode code, std::ostream& error) {
  error << "psctl: " << sentence << std::endl;
  return static_cast<int>(code);
}

bool IsModelFile(const std::string& path) {
  return absl::EndsWith(path, ".safetensors") || absl::EndsWith(path, ".pt") ||
         absl::EndsWith(path, ".pth");
}

// Runs the program with psctl's input and output, and forwards stop signals to it so that the
// program does not outlive psctl. Returns the program's exit code.
int Run(const std::vector<std::string>& words, std::ostream& error) {
  sigset_t heard, before;
  sigemptyset(&heard);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&heard, number);
  pthread_sigmask(SIG_BLOCK, &heard, &before);
  const auto unblock =
      absl::MakeCleanup([&before] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &before);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments = ExecArguments(words);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0], nullptr, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return Fail(absl::StrCat("cannot start ", words[0], ": ", std::strerror(failed)),
                ExitCode::kFailed, error);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const int number = sigwaitinfo(&heard, nullptr);
    if (number > 0 && number != SIGCHLD) kill(child, number);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Creates a private folder for temporary files. Returns "" on failure, with errno set.
std::string MakeTemporaryFolder() {
  const char* const place = std::getenv("TMPDIR");
  std::string folder =
      absl::StrCat(place == nullptr || *place == '\0' ? "/tmp" : place, "/psctl-XXXXXX");
  return mkdtemp(folder.data()) != nullptr ? folder : "";
}

// Writes the checkpoint's model to `file`. Returns psctl's exit code.
int ExportTo(const std::string& checkpoint, const std::string& file, std::ostream& error) {
  const auto flags = FlagTable("psctl export", ExportFlags())
                         .Parse({absl::StrCat("--dir=", checkpoint), absl::StrCat("--out=", file)});
  if (!flags.ok()) return Fail(std::string(flags.status().message()), ExitCode::kUsage, error);
  std::ostream nowhere(nullptr);
  return ExportCommand(*flags, nowhere, error);
}

// Flags that find the model and the program.
std::vector<FlagSpec> ModelFlags(const std::string& out) {
  return {
      {"model", "PATH",
       "The model: a run's folder, a checkpoint in it, or a model file (.safetensors, .pt, .pth). "
       "The last line of a run names it."},
      {"job", "FILE", "The job file. Default: job.textproto of the model's run."},
      {"set", "PATH=VALUE", "Sets one field of the job.", true},
      {"device", "NAME", "cpu, cuda or cuda:INDEX. Default: cpu."},
      {"threads", "N", "Computing threads of torch. Default: 1."},
      {"out", "FILE", out},
      {"worker_binary", "PATH",
       "The worker program that trained the model. Default: the run's program, otherwise ps_worker "
       "in psctl's folder."},
  };
}

// ModelFlags(), and the flags that choose samples.
std::vector<FlagSpec> SampleFlags(const std::string& data, const std::string& json) {
  std::vector<FlagSpec> flags = ModelFlags(
      "The file to write. Default: standard output. Its extension selects the format of "
      "predictions: .csv, .jsonl, .npy or .safetensors.");
  const std::vector<FlagSpec> more = {
      {"data", "PATH", data},
      {"download", "", "Downloads MNIST, as in 'psctl run'."},
      {"mirrors", "URL,...",
       "With --download: web directories with the files, instead of the public ones.", false, 0,
       "download"},
      {"on_training_data", "", "Uses the training samples instead of the test set."},
      {"json", "", json},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Appends the flags that the program receives unchanged.
void AddCommonWords(const FlagValues& flags, std::vector<std::string>& words) {
  for (const char* name : {"data", "device", "mirrors", "threads", "out"}) {
    if (flags.Has(name)) words.push_back(absl::StrCat("--", name, "=", flags.Get(name)));
  }
  for (const char* name : kSamplingFlags) {
    if (flags.Has(name)) words.push_back(absl::StrCat("--generate_", name, "=", flags.Get(name)));
  }
  for (const char* name : {"download", "on_training_data", "json"}) {
    if (flags.Has(name)) words.push_back(absl::StrCat("--", name));
  }
  for (const std::string& set : flags.All("set")) words.push_back(absl::StrCat("--set=", set));
}

// Measures a running job.
int WatchCommand(const FlagValues& flags, std::ostream& error) {
  for (const char* name : {"model", "job"}) {
    if (!flags.Has(name)) continue;
    return Fail(absl::StrCat("psctl evaluate measures the job of --servers, so --", name,
                             " cannot be combined with it"),
                ExitCode::kUsage, error);
  }
  const absl::StatusOr<std::vector<std::string>> servers = ServersFlag(flags, "evaluate");
  if (!servers.ok()) {
    return Fail(std::string(servers.status().message()), ExitCode::kUsage, error);
  }
  absl::Duration every;
  if (!absl::ParseDuration(flags.Get("every"), &every) || every <= absl::ZeroDuration() ||
      every == absl::InfiniteDuration()) {
    return Fail(flags.Has("every")
                    ? absl::StrCat("--every=", flags.Get("every"),
                                   ": expected a duration such as 5s or 500ms")
                    : "psctl evaluate --servers=... needs --every=DURATION, as --every=5s",
                ExitCode::kUsage, error);
  }
  const absl::StatusOr<std::string> program =
      FindProgram(flags, "worker_binary", OwnDirectory(), "ps_worker");
  if (!program.ok()) {
    return Fail(std::string(program.status().message()), ExitCode::kUsage, error);
  }
  std::vector<std::string> words = {*program, absl::StrCat("--servers=", flags.Get("servers")),
                                    absl::StrCat("--evaluate_every=", flags.Get("every"))};
  if (flags.Has("certs")) words.push_back(absl::StrCat("--certs=", flags.Get("certs")));
  AddCommonWords(flags, words);
  // The program may run for long, so it replaces psctl and receives signals directly.
  return BecomeProgram(words, error);
}

// Returns the program that the model's run trained, or "" if it is ps_worker or the run is unknown.
// Warns on `error` if the program has changed since.
absl::StatusOr<std::string> TrainedProgram(const std::string& model, std::ostream& error) {
  const absl::StatusOr<RunRecord> record = ReadRunRecord(GetRunFolder(model));
  if (absl::IsNotFound(record.status())) return std::string();
  if (!record.ok()) return record.status();
  const std::string& program = record->worker_binary;
  if (program.empty()) return program;
  if (access(program.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program that trained the model, ", program,
                     ", no longer exists; name it with --worker_binary"));
  }
  if (GetChecksum(program) != record->worker_checksum) {
    error << "psctl: " << program << " has changed since the model was trained" << std::endl;
  }
  return program;
}

// Returns the value of a flag in a command line (--name=value or --name value), or "".
std::string FlagIn(const std::vector<std::string>& command, const std::string& name) {
  std::string value;
  for (size_t i = 0; i < command.size(); ++i) {
    absl::string_view word = command[i];
    if (!absl::ConsumePrefix(&word, absl::StrCat("--", name))) continue;
    if (absl::ConsumePrefix(&word, "=")) value = std::string(word);
    if (word.empty() && i + 1 < command.size()) value = command[i + 1];
  }
  return value;
}

bool HasModel(const std::string& folder) {
  std::error_code unknown;
  return fs::exists(absl::StrCat(folder, "/model.safetensors"), unknown);
}

// NOT_FOUND: the run used --hosts, so the model is on the machine of the first server.
absl::Status CheckModelIsHere(const std::string& run) {
  const absl::StatusOr<RunRecord> record = ReadRunRecord(run);
  if (HasModel(run) || !record.ok() || FlagIn(record->command, "hosts").empty()) {
    return absl::OkStatus();
  }
  const std::string dir = FlagIn(record->command, "dir");
  return absl::NotFoundError(
      absl::StrCat("the model of ", run, " is on the machine of the run's first server; copy ",
                   "model.safetensors from ", dir.empty() ? run : dir, " there into ", run));
}

int LookCommand(const std::string& what, const FlagValues& flags, std::ostream& error) {
  std::string model = flags.Get("model");
  if (model.empty()) {
    return Fail(
        absl::StrCat("psctl ", what, " needs --model=PATH: a run's folder, a checkpoint in ",
                     "it, or a model file"),
        ExitCode::kUsage, error);
  }
  absl::StatusOr<std::string> program = std::string();
  if (!flags.Has("worker_binary")) program = TrainedProgram(model, error);
  if (program.ok() && program->empty()) {
    program = FindProgram(flags, "worker_binary", OwnDirectory(), "ps_worker");
  }
  if (!program.ok()) {
    return Fail(std::string(program.status().message()), ExitCode::kUsage, error);
  }
  std::error_code unknown;
  if (!IsModelFile(model) && !fs::exists(model, unknown)) {
    return Fail(
        absl::StrCat("there is no file or folder ", model, "; --model takes a model file, a ",
                     "run's folder, or a checkpoint in it"),
        ExitCode::kData, error);
  }
  if (const absl::Status here = CheckModelIsHere(model); !here.ok()) {
    return Fail(std::string(here.message()), ExitCode::kData, error);
  }
  const std::string job = flags.Get("job", GetJobFile(model));
  // A custom program may build the model without a job.
  if (job.empty() && !flags.Has("set") && IsOwnWorker(*program)) {
    return Fail(absl::StrCat("there is no job.textproto beside ", model,
                             "; name the job's file with --job"),
                ExitCode::kUsage, error);
  }

  std::string folder;
  const auto remove = absl::MakeCleanup([&folder] {
    std::error_code ignored;
    if (!folder.empty()) fs::remove_all(folder, ignored);
  });
  if (!IsModelFile(model) && !HasModel(model)) {
    folder = MakeTemporaryFolder();
    if (folder.empty()) {
      return Fail(absl::StrCat("cannot make a temporary folder: ", std::strerror(errno),
                               "; set TMPDIR to a directory that you can write to"),
                  ExitCode::kFailed, error);
    }
    const std::string exported = absl::StrCat(folder, "/model.safetensors");
    const int code = ExportTo(model, exported, error);
    if (code != 0) return code;
    model = exported;
  }

  std::vector<std::string> words = {*program, absl::StrCat("--", what, "=", model)};
  if (!job.empty()) words.push_back(absl::StrCat("--job=", job));
  AddCommonWords(flags, words);
  return folder.empty() ? BecomeProgram(words, error) : Run(words, error);
}

}  // namespace

std::vector<FlagSpec> EvaluateFlags() {
  std::vector<FlagSpec> flags =
      SampleFlags("Data to measure on, converted like the training data. Default: the run's data.",
                  "Writes JSON with all digits and, for a classifier, the confusion matrix.");
  flags.push_back({"servers", "HOST:PORT,...",
                   "Measures the job that runs on these servers instead of a model, once per "
                   "--every until the job ends. List all servers in order."});
  flags.push_back({"every", "DURATION",
                   "With --servers: the interval between measurements, for example 5s.", false, 0,
                   "servers"});
  flags.push_back(CertificatesFlag());
  flags.back().needs = "servers";
  return flags;
}

std::vector<FlagSpec> PredictFlags() {
  return SampleFlags(
      "The samples to predict, in order: a table, an image, a folder of images, or a file in the "
      "run's format. Targets may be missing. Default: the run's test set.",
      "Writes a JSON object for each sample instead of a line of CSV.");
}

std::vector<FlagSpec> GenerateFlags() {
  std::vector<FlagSpec> flags = ModelFlags("The file to write. Default: standard output.");
  const std::vector<FlagSpec> more = {
      {"prompt", "TEXT",
       "The beginning of the text. A model whose vocabulary is not the 256 bytes reads and writes "
       "token ids, for example '17 4 250'."},
      {"length", "N", "Bytes or tokens to add. Default: 200."},
      {"temperature", "NUMBER",
       "The sampling temperature: above 1 flattens the probabilities, below 1 sharpens them, 0 "
       "picks the most likely token. Default: 0.8."},
      {"top_k", "N", "Samples from the N most likely tokens. Default: 0, all tokens."},
      {"seed", "N", "The random seed for sampling. Default: 1."},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

int EvaluateCommand(const FlagValues& flags, std::ostream&, std::ostream& error) {
  if (flags.Has("servers")) return WatchCommand(flags, error);
  return LookCommand("evaluate", flags, error);
}

int PredictCommand(const FlagValues& flags, std::ostream&, std::ostream& error) {
  return LookCommand("predict", flags, error);
}

int GenerateCommand(const FlagValues& flags, std::ostream&, std::ostream& error) {
  if (flags.Get("prompt").empty()) {
    return Fail("psctl generate needs --prompt=TEXT, the beginning of the text", ExitCode::kUsage,
                error);
  }
  for (const auto& [name, least] : {std::pair("length", 1), {"top_k", 0}, {"seed", 0}}) {
    const auto number = flags.Integer(name, least, least, std::numeric_limits<int64_t>::max());
    if (!number.ok()) {
      return Fail(std::string(number.status().message()), ExitCode::kUsage, error);
    }
  }
  double temperature = 0;
  const bool is_number = absl::SimpleAtod(flags.Get("temperature", "1"), &temperature);
  if (!is_number || !std::isfinite(temperature) || temperature < 0) {
    return Fail(absl::StrCat("--temperature=", flags.Get("temperature"),
                             ": expected a number of at least 0, for example 0.8"),
                ExitCode::kUsage, error);
  }
  return LookCommand("generate", flags, error);
}

std::string GetRunFolder(const std::string& model) {
  const fs::path path(model);
  std::error_code unknown;
  std::vector<fs::path> folders = {path, path / "..", path.parent_path()};
  // For a checkpoint in the run's state/ folder.
  const fs::path above = path / ".." / "..";
  if (fs::equivalent(StateDirectory(above.string()), path / "..", unknown)) {
    folders.push_back(above);
  }
  for (const fs::path& folder : folders) {
    const fs::path place = folder.empty() ? fs::path(".") : folder;
    if (fs::exists(place / "job.textproto", unknown)) return place.lexically_normal();
  }
  return "";
}

std::string GetJobFile(const std::string& model) {
  const std::string folder = GetRunFolder(model);
  return folder.empty() ? "" : (fs::path(folder) / "job.textproto").lexically_normal().string();
}

}  // namespace torchps
