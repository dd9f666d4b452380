#include "tools/doctor/disk_loss.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tools/base/format.h"

namespace torchps {
namespace {

using Level = Finding::Level;

constexpr char kSubject[] = "a lost disk";

// Describes the training lost if only checkpoints are kept.
std::string SinceTheCheckpoint(const DurabilitySpec& durability) {
  std::string often;
  if (durability.checkpoint_seconds() > 0) {
    often = absl::StrCat("every ", durability.checkpoint_seconds(), " s");
  }
  if (durability.checkpoint_steps() > 0) {
    absl::StrAppend(&often, often.empty() ? "" : " and ", "every ",
                    Count(durability.checkpoint_steps(), "step"), " of a slot");
  }
  return absl::StrCat("the training since the last checkpoint, which is taken ",
                      often.empty() ? "only by 'psctl checkpoint'" : often);
}

}  // namespace

Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart) {
  if (durability.level() == DurabilitySpec::NONE) {
    return {Level::kOk, kSubject,
            "would cost the whole job, like any server crash: durability.level is NONE", ""};
  }
  if (durability.copies() > 0 && servers_apart >= 2) {
    const std::string cost = durability.level() == DurabilitySpec::LOG
                                 ? "no acknowledged push"
                                 : SinceTheCheckpoint(durability);
    return {Level::kOk, kSubject,
            absl::StrCat("would cost ", cost, ": another server keeps copies of its files"), ""};
  }
  if (durability.copies() > 0 && servers_apart == 1) {
    return {
        Level::kProblem, kSubject,
        "durability.copies is 1, but the job has one server, so no other server can keep copies",
        "name two servers or more, or set durability.copies to 0"};
  }
  if (durability.copies() > 0) {
    return {
        Level::kWarning, kSubject,
        "would cost the whole job, copies included: under 'psctl run' on one machine all servers "
        "keep their files in one directory",
        "copies help only if servers have separate disks (--hosts, or ps_server started by hand)"};
  }
  const std::string text = absl::StrCat(
      "would cost the whole job, ",
      durability.level() == DurabilitySpec::LOG ? "checkpoints and push log" : "checkpoints",
      " included: durability.copies is 0");
  if (servers_apart < 2) return {Level::kOk, kSubject, text, ""};
  return {Level::kWarning, kSubject, text,
          "set durability.copies to 1 to copy each server's files to another server; this doubles "
          "the writes"};
}

}  // namespace torchps
