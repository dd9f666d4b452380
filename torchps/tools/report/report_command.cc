#include "torchps/tools/report/report_command.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/check.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {

namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

Json MendedMessage(const Descriptor& type, const Json& printed);

// Corrects one value of `field`; `printed` is Protobuf's output.
Json MendedValue(const FieldDescriptor& field, const Json& printed) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return Json::parse(printed.get<std::string>());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      // "NaN" or "Infinity".
      if (printed.is_string()) return nullptr;
      // Six digits keep reports readable and golden files stable.
      return Json::parse(absl::StrFormat("%.6g", printed.get<double>()));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MendedMessage(*field.message_type(), printed);
    default:
      return printed;
  }
}

Json MendedMessage(const Descriptor& type, const Json& printed) {
  // The job stays in Protobuf's JSON mapping, the documented format of a job.
  if (&type == JobSpec::descriptor()) return printed;
  Json mended = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto found = printed.find(field.name());
    if (found == printed.end()) {
      if (field.options().GetExtension(or_null)) mended[field.name()] = nullptr;
    } else if (field.options().GetExtension(inlined)) {
      mended.update(MendedMessage(*field.message_type(), *found));
    } else if (field.options().GetExtension(by_name)) {
      Json& values = mended[field.name()] = Json::object();
      const FieldDescriptor& value = *field.message_type()->FindFieldByName("value");
      for (const Json& metric : *found) {
        values[metric["name"].get<std::string>()] = MendedValue(value, metric["value"]);
      }
    } else if (field.is_repeated()) {
      Json& values = mended[field.name()] = Json::array();
      for (const Json& value : *found) values.push_back(MendedValue(field, value));
    } else {
      mended[field.name()] = MendedValue(field, *found);
    }
  }
  return mended;
}

Json ProtobufMessage(const Descriptor& type, const Json& mended);

// The inverse of MendedValue().
Json ProtobufValue(const FieldDescriptor& field, const Json& mended) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return ProtobufMessage(*field.message_type(), mended);
  }
  return mended.is_null() ? Json("NaN") : mended;
}

// The inverse of MendedMessage(): returns Protobuf's JSON. Reads known fields only.
Json ProtobufMessage(const Descriptor& type, const Json& mended) {
  if (&type == JobSpec::descriptor()) return mended;
  Json message = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto& options = field.options();
    if (options.GetExtension(inlined)) {
      message[field.name()] = ProtobufMessage(*field.message_type(), mended);
      continue;
    }
    const auto found = mended.find(field.name());
    if (found == mended.end() || (found->is_null() && options.GetExtension(or_null))) continue;
    if (!field.is_repeated()) {
      message[field.name()] = ProtobufValue(field, *found);
      continue;
    }
    Json& values = message[field.name()] = Json::array();
    for (const auto& [name, value] : found->items()) {
      if (options.GetExtension(by_name)) {
        values.push_back({{"name", name}, {"value", value.is_null() ? Json("NaN") : value}});
      } else {
        values.push_back(ProtobufValue(field, value));
      }
    }
  }
  return message;
}

}  // namespace

absl::StatusOr<Report> ParseReportJson(const std::string& text) {
  const auto wrong = [](const std::string& reason) {
    return absl::DataLossError(absl::StrCat("expected a report as JSON: ", reason));
  };
  Report report;
  try {
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    const Json json = Json::parse(text);
    if (!json.contains("schema")) return wrong("there is no field \"schema\"");
    const Json message = ProtobufMessage(*Report::descriptor(), json);
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(message.dump(), &report, options);
    if (!parsed.ok()) return wrong(std::string(parsed.message()));
  } catch (const Json::exception& error) {
    return wrong(error.what());
  }
  return report;
}

std::string ReportJson(const Report& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(report, &text, options);
  TPS_CHECK(printed.ok(), "Protobuf cannot print a report");
  Json mended = MendedMessage(*Report::descriptor(), Json::parse(text));
  // Empty lists of targets and members are omitted, like other fields that only some runs use.
  if (report.targets().empty()) mended.erase("targets");
  for (Json& slot : mended["slots"]) {
    if (slot["members"].empty()) slot.erase("members");
  }
  return mended.dump(2) + "\n";
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const auto fail = [&](const char* what) {
    const int error = errno;
    std::remove(temporary.c_str());
    const std::string message =
        absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
    if (error == ENOENT) return absl::NotFoundError(message);
    if (error == EACCES || error == EROFS) return absl::PermissionDeniedError(message);
    return absl::ResourceExhaustedError(message);
  };
  std::FILE* const file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return fail("write");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (std::fclose(file) != 0 || !written) return fail("write");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return fail("rename a new file to");
  return absl::OkStatus();
}

namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);

// Blocks until the job has ended. Each waiting request is limited, because a vanished machine would
// not end it. A short request then checks that the server still answers.
absl::Status WaitUntilDone(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
                           std::ostream& error) {
  absl::Duration answered_at = clock.Now();
  for (;;) {
    if (cluster.GetJobStatus(/*wait_until_done=*/true, request.parked_for).ok()) {
      return absl::OkStatus();
    }
    const absl::Status status =
        cluster.GetJobStatus(/*wait_until_done=*/false, kAnswerTimeout).status();
    const absl::Duration now = clock.Now();
    if (status.ok()) {
      answered_at = now;
      continue;
    }
    const bool away = status.code() == absl::StatusCode::kUnavailable ||
                      status.code() == absl::StatusCode::kDeadlineExceeded;
    if (!away || now - answered_at >= request.patience) return status;
    error << "psctl: waiting for server 0 at " << cluster.addresses()[0] << ": " << status.message()
          << std::endl;
  }
}

}  // namespace

std::vector<FlagSpec> ReportFlags() {
  std::vector<FlagSpec> flags = ClusterFlags();
  flags.push_back({"wait", "", "Waits for server 0 to start and for the job to end."});
  flags.push_back({"patience", "DURATION",
                   "With --wait: how long server 0 may be unreachable. Default: 60s.", false, 0,
                   "wait"});
  flags.push_back({"report", "FILE", "Also writes the report as JSON (docs/operate.md)."});
  return flags;
}

int MakeReport(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
               std::ostream& out, std::ostream& error) {
  const auto fail = [&](const absl::Status& status) {
    error << "psctl: " << NoAnswerText(0, cluster.addresses()[0], status) << std::endl;
    return static_cast<int>(ExitCodeFor(status));
  };
  if (request.wait) {
    const absl::Status status = WaitUntilDone(cluster, request, clock, error);
    if (!status.ok()) return fail(status);
  }
  const absl::StatusOr<JobStatus> job =
      cluster.GetJobStatus(/*wait_until_done=*/false, kAnswerTimeout);
  if (!job.ok()) return fail(job.status());
  const std::vector<ServerAnswer> answers = AskAllServers(cluster, kAnswerTimeout);
  const std::string wrong_list = ServerListText(job, answers);
  if (job->phase() == JobStatus::NO_JOB) {
    error << "psctl: there is no job to report on: "
          << (FirstIsAnother(answers) ? wrong_list : "no worker has connected yet\n") << std::flush;
    return static_cast<int>(ExitCode::kFailed);
  }
  if (!wrong_list.empty()) error << "psctl: warning: the report is incomplete: " << wrong_list;
  const Report report = BuildReport(*job, answers);
  out << ReportText(report);
  if (!request.file.empty()) {
    const absl::Status written = WriteFileAtomically(request.file, ReportJson(report));
    if (!written.ok()) {
      error << "psctl: " << written.message() << std::endl;
      return static_cast<int>(ExitCode::kFailed);
    }
    out << "\nreport: " << request.file << "\n";
  }
  out.flush();
  return static_cast<int>(report.reconciles().all() ? ExitCode::kOk : ExitCode::kFailed);
}

int ReportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster = ConnectByFlags(flags, "report");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  ReportRequest request;
  request.file = flags.Get("report");
  request.wait = flags.Has("wait");
  if (flags.Has("patience") && (!absl::ParseDuration(flags.Get("patience"), &request.patience) ||
                                request.patience < absl::ZeroDuration())) {
    error << "psctl: --patience=" << flags.Get("patience")
          << ": expected a duration such as 60s or 5m" << std::endl;
    return static_cast<int>(ExitCode::kUsage);
  }
  request.parked_for = std::clamp(request.patience / 2, absl::Seconds(1), absl::Seconds(30));
  return MakeReport(**cluster, request, SteadyClock(), out, error);
}

}  // namespace torchps
