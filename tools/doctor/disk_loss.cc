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
  return absl::StrCat("what was learnt since the last checkpoint, which is taken ",
                      often.empty() ? "when 'psctl checkpoint' asks for it" : often);
}

}  // namespace

Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart) {
  if (durability.level() == DurabilitySpec::NONE) {
    return {
        Level::kOk, kSubject,
        "costs no more than a server's death, which is all of the job: durability.level is NONE",
        ""};
  }
  if (durability.copies() > 0 && servers_apart >= 2) {
    const std::string cost = durability.level() == DurabilitySpec::LOG
                                 ? "nothing that was acknowledged"
                                 : SinceTheCheckpoint(durability);
    return {Level::kOk, kSubject,
            absl::StrCat("would cost ", cost, ": another server has copies of what was on it"), ""};
  }
  if (durability.copies() > 0 && servers_apart == 1) {
    return {
        Level::kProblem, kSubject,
        "durability.copies is 1, and the job is to have one server, whose files nobody could copy",
        "name two servers or more, or set durability.copies to 0"};
  }
  if (durability.copies() > 0) {
    return {Level::kWarning, kSubject,
            "would cost all of the job, copies included: under 'psctl run' on one machine all "
            "servers keep their files in one directory",
            "copies are of use where servers have disks of their own (--hosts, or ps_server by "
            "hand)"};
  }
  const std::string text = absl::StrCat(
      "would cost all of the job, ",
      durability.level() == DurabilitySpec::LOG ? "checkpoints and push log" : "checkpoints",
      " included: durability.copies is 0");
  if (servers_apart < 2) return {Level::kOk, kSubject, text, ""};
  return {Level::kWarning, kSubject, text,
          "durability.copies: 1 keeps what each server has at another one, too, at the price of "
          "twice the writing"};
}

}  // namespace torchps
