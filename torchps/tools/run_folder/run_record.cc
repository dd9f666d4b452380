#include "torchps/tools/run_folder/run_record.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/process/version.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

std::string PathIn(const std::string& dir) { return absl::StrCat(dir, "/run.json"); }

std::string Text(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3S%Ez", time, absl::UTCTimeZone());
}

absl::Time TimeIn(const Json& json, const char* key) {
  absl::Time time;
  std::string error;
  return absl::ParseTime(absl::RFC3339_full, json.value(key, ""), &time, &error)
             ? time
             : absl::InfinitePast();
}

std::optional<RunOutcome> OutcomeIn(const Json& json) {
  const std::string name = json.value("outcome", "");
  for (const RunOutcome outcome :
       {RunOutcome::kFinished, RunOutcome::kFailed, RunOutcome::kStopped}) {
    if (name == OutcomeName(outcome)) return outcome;
  }
  return std::nullopt;
}

// Maps a field of run.json to a member of RunRecord. Empty values are not written.
template <typename Member>
struct Field {
  const char* key;
  Member RunRecord::*member;
};
constexpr Field<std::string> kTexts[] = {{"version", &RunRecord::version},
                                         {"commit", &RunRecord::commit},
                                         {"data", &RunRecord::data},
                                         {"certs", &RunRecord::certs},
                                         {"report", &RunRecord::report},
                                         {"worker_binary", &RunRecord::worker_binary},
                                         {"worker_checksum", &RunRecord::worker_checksum},
                                         {"reason", &RunRecord::reason}};
constexpr Field<std::vector<std::string>> kLists[] = {{"servers", &RunRecord::servers},
                                                      {"worker_hosts", &RunRecord::worker_hosts}};

// Returns this process's command line.
std::vector<std::string> OwnCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!line.empty()) line.pop_back();
  return absl::StrSplit(line, '\0');
}

}  // namespace

RunRecord RecordOfThisRun(const std::string& worker_binary) {
  std::error_code unknown;
  RunRecord record;
  record.command = OwnCommand();
  record.directory = std::filesystem::current_path(unknown).string();
  record.host = OwnHostName();
  record.version = std::string(ReleaseVersion());
  record.commit = std::string(ReleaseCommit());
  record.began = absl::Now();
  record.worker_binary = worker_binary;
  if (!worker_binary.empty()) record.worker_checksum = GetChecksum(worker_binary);
  return record;
}

void EndRecord(const absl::Status& outcome, int exit_code, RunRecord& record) {
  record.ended = absl::Now();
  record.exit_code = exit_code;
  record.outcome = outcome.ok()                 ? RunOutcome::kFinished
                   : absl::IsCancelled(outcome) ? RunOutcome::kStopped
                                                : RunOutcome::kFailed;
  record.reason = std::string(outcome.message());
}

absl::Status WriteRunRecord(const std::string& dir, const RunRecord& record) {
  Json json = {{"command", record.command},
               {"directory", record.directory},
               {"host", record.host},
               {"began", Text(record.began)}};
  if (record.ended.has_value()) json["ended"] = Text(*record.ended);
  if (record.exit_code.has_value()) json["exit_code"] = *record.exit_code;
  if (record.outcome.has_value()) json["outcome"] = OutcomeName(*record.outcome);
  for (const auto& [key, member] : kTexts) {
    if (!(record.*member).empty()) json[key] = record.*member;
  }
  for (const auto& [key, member] : kLists) {
    if (!(record.*member).empty()) json[key] = record.*member;
  }
  const std::string text =
      json.dump(/*indent=*/2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  const absl::Status written =
      WriteFileAtomically(*MakePosixFileSystem(), PathIn(dir), absl::StrCat(text, "\n"));
  return written.ok() ? written : absl::ResourceExhaustedError(written.message());
}

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& dir) {
  std::ifstream file(PathIn(dir));
  if (!file) return absl::NotFoundError(absl::StrCat(PathIn(dir), ": no such file"));
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  try {
    RunRecord record;
    record.command = json.at("command").get<std::vector<std::string>>();
    record.directory = json.value("directory", "");
    record.host = json.value("host", "");
    record.began = TimeIn(json, "began");
    if (json.contains("ended")) record.ended = TimeIn(json, "ended");
    if (json.contains("exit_code")) record.exit_code = json.at("exit_code").get<int>();
    record.outcome = OutcomeIn(json);
    for (const auto& [key, member] : kTexts) record.*member = json.value(key, "");
    for (const auto& [key, member] : kLists) {
      record.*member = json.value(key, std::vector<std::string>());
    }
    return record;
  } catch (const Json::exception&) {
    return absl::DataLossError(
        absl::StrCat(PathIn(dir), ": expected the record of a run as JSON, got something else"));
  }
}

std::string OwnHostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

const char* OutcomeName(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kFinished:
      return "finished";
    case RunOutcome::kFailed:
      return "failed";
    case RunOutcome::kStopped:
      return "stopped";
  }
  return "";
}

std::string GetChecksum(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  Fnv1a hash;
  std::string piece(1 << 20, '\0');
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    hash.AddString({piece.data(), static_cast<size_t>(file.gcount())});
  } while (file);
  return absl::StrFormat("fnv1a-%016x", hash.value());
}

}  // namespace torchps
