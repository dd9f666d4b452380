#include "tools/report/report_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "wire/verdict_counts.h"

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

// Ratios of nothing are 0; JSON has no infinity.
double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Six significant digits, so that a report is readable and a golden file stable.
Json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return Json::parse(absl::StrFormat("%.6g", value));
}

// The job as the coordinator completed it, with the field names of job.proto.
Json JobJson(const JobSpec& job) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(job, &text, options).ok()) return nullptr;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json EvaluationJson(const Report::Evaluation& evaluation) {
  return {{"samples", evaluation.samples},
          {"accuracy", Number(evaluation.accuracy)},
          {"loss", Number(evaluation.loss)},
          {"seconds", Number(evaluation.seconds)},
          {"at_seconds", Number(evaluation.at_seconds)}};
}

Json EpochJson(const Report::Epoch& epoch) {
  return {{"epoch", epoch.number},
          {"closed", epoch.closed},
          {"samples", epoch.samples},
          {"used", epoch.used},
          {"reissued", epoch.reissued},
          {"outstanding", epoch.outstanding},
          {"train_loss", Number(epoch.train_loss)},
          {"closed_at_seconds", Number(epoch.closed_at_seconds)},
          {"test", epoch.evaluation ? EvaluationJson(*epoch.evaluation) : Json(nullptr)}};
}

Json TimesJson(const Report::Times& times, double scale) {
  return {{"compute", Number(times.compute * scale)}, {"push", Number(times.push * scale)},
          {"pull", Number(times.pull * scale)},       {"wait", Number(times.wait * scale)},
          {"data", Number(times.data * scale)},       {"other", Number(times.other * scale)}};
}

Json SlotJson(const Report::Slot& slot) {
  Json json = {{"slot", slot.slot},
               {"incarnation", slot.incarnation},
               {"host", slot.host},
               {"device", slot.device},
               {"state", slot.state},
               {"reason", slot.reason},
               {"steps", slot.steps},
               {"samples", slot.samples},
               {"mean_loss", Number(slot.mean_loss)},
               {"rejected_pushes", slot.rejected_pushes},
               {"skipped_nonfinite", slot.skipped_nonfinite},
               {"parked_pulls", slot.parked_pulls},
               {"seconds", TimesJson(slot.seconds, 1)},
               {"shares", TimesJson(slot.seconds, Ratio(1, slot.seconds.total()))}};
  if (slot.rolled_back_pushes > 0) {
    json["rolled_back"] = {{"pushes", slot.rolled_back_pushes},
                           {"blocks", slot.rolled_back_blocks}};
  }
  return json;
}

Json CheckpointJson(const CheckpointStatus& status) {
  Json json = {{"number", status.number()},
               {"completed", status.completed()},
               {"failed", status.failed()},
               {"bytes", status.bytes()},
               {"seconds", Number(status.seconds())},
               {"longest_pause_seconds", Number(status.longest_pause_seconds())},
               {"at_seconds", Number(status.at_seconds())},
               {"directory", status.directory()}};
  if (!status.last_error().empty()) json["last_error"] = status.last_error();
  return json;
}

Json BlocksJson(const VerdictCounts& blocks) {
  Json json = {{"acknowledged", blocks.acknowledged()}, {"applied", Applied(blocks)}};
  const google::protobuf::Descriptor& fields = *VerdictCounts::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    json[fields.field(i)->name()] =
        VerdictCounts::GetReflection()->GetUInt64(blocks, fields.field(i));
  }
  return json;
}

Json ServerJson(const Report::Server& server) {
  Json json = {{"index", server.index}, {"address", server.address}};
  if (!server.error.empty()) {
    json["error"] = server.error;
    return json;
  }
  json["blocks"] = server.blocks;
  json["state_bytes"] = server.state_bytes;
  json["versions"] = {{"min", server.min_version}, {"max", server.max_version}};
  json["bytes_in"] = server.bytes_in;
  json["bytes_out"] = server.bytes_out;
  json["uptime_seconds"] = Number(server.uptime_seconds);
  if (server.came_back) {
    json["came_back"] = true;
    json["restored_checkpoint"] = server.restored_checkpoint;
  }
  json["pushed_blocks"] = BlocksJson(server.verdicts);
  return json;
}

Json DistributionJson(const Report::Distribution& distribution) {
  return {{"count", distribution.count},
          {"mean", Number(distribution.mean)},
          {"max", distribution.max},
          {"histogram", distribution.counts},
          {"last_bucket_is_open", distribution.open}};
}

Json ChecksJson(const Report& report) {
  Json json = {{"all", report.reconciles()}};
  for (const Report::Check& check : report.checks) {
    Json entry = {{"holds", check.holds ? Json(*check.holds) : Json(nullptr)},
                  {"expected", check.expected},
                  {"actual", check.actual}};
    if (!check.note.empty()) entry["not_judged"] = check.note;
    json[check.name] = std::move(entry);
  }
  return json;
}

Json ResultJson(const Report& report) {
  const Report::Epoch* const last = report.last_evaluated();
  if (last == nullptr) return nullptr;
  const Report::Epoch* const best = report.best_evaluated();
  return {{"epoch", last->number},
          {"accuracy", Number(last->evaluation->accuracy)},
          {"loss", Number(last->evaluation->loss)},
          {"best_epoch", best->number},
          {"best_accuracy", Number(best->evaluation->accuracy)}};
}

Json ConsistencyJson(const ConsistencySpec& spec) {
  return {{"mode", ConsistencySpec::Mode_Name(spec.mode())},
          {"staleness_bound", spec.staleness_bound()},
          {"backup_workers", spec.backup_workers()},
          {"lag_policy", LagContract::Policy_Name(spec.lag().policy())},
          {"free_lag", spec.lag().free_lag()},
          {"max_lag", spec.lag().max_lag()}};
}

}  // namespace

std::string ReportJson(const Report& report) {
  Json json = {{"schema", 1},
               {"name", report.job.name()},
               // A 64-bit number does not survive most JSON readers.
               {"job_id", absl::StrFormat("%016x", report.job_id)},
               {"finished", report.finished},
               {"phase", report.phase},
               {"result", ResultJson(report)},
               {"wall_seconds", Number(report.wall_seconds)},
               {"samples", report.samples},
               {"samples_per_second", Number(report.samples_per_second)},
               {"steps", report.pushes},
               {"parameters", report.parameters},
               {"consistency", ConsistencyJson(report.job.consistency())}};
  json["epochs"] = Json::array();
  for (const Report::Epoch& epoch : report.epochs) json["epochs"].push_back(EpochJson(epoch));
  json["slots"] = Json::array();
  for (const Report::Slot& slot : report.slots) json["slots"].push_back(SlotJson(slot));
  json["servers"] = Json::array();
  for (const Report::Server& server : report.servers) {
    json["servers"].push_back(ServerJson(server));
  }
  json["pushed_blocks"] = BlocksJson(report.blocks);
  json["versions"] = {{"min", report.min_version}, {"max", report.max_version}};
  json["lag"] = DistributionJson(report.lag);
  json["clock_gap"] = DistributionJson(report.clock_gap);
  json["reconciles"] = ChecksJson(report);
  if (report.checkpoint.enabled()) json["checkpoint"] = CheckpointJson(report.checkpoint);
  if (report.resumed_checkpoint > 0) json["resumed_checkpoint"] = report.resumed_checkpoint;
  if (!report.stopped.empty()) json["stopped"] = report.stopped;
  if (report.rolled_back_pushes > 0) {
    json["rolled_back"] = {{"pushes", report.rolled_back_pushes},
                           {"blocks", report.rolled_back_blocks}};
  }
  if (report.server_restarts + report.worker_restarts > 0) {
    json["restarts"] = {{"servers", report.server_restarts}, {"workers", report.worker_restarts}};
  }
  json["job"] = JobJson(report.job);
  // Names come from the network: bytes that are no UTF-8 are replaced, not thrown at.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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

}  // namespace torchps
