#include "torchps/common/process/command_line.h"

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/common/process/version.h"
#include "torchps/common/text.h"

namespace torchps {

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kRefused;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kData;
    case absl::StatusCode::kAlreadyExists:
      return ExitCode::kAddressInUse;
    case absl::StatusCode::kAborted:
      return ExitCode::kLostSlot;
    default:
      return ExitCode::kFailed;
  }
}

namespace {

// Returns true for the flags that absl handles before it looks up any flag.
bool IsAnsweredByAbsl(absl::string_view name) {
  return absl::StartsWith(name, "help") || name == "version" || name == "only_check_args";
}

// absl accepts "--noinsecure" for "--insecure=false".
bool IsNegatedSwitch(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "no")) return false;
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->IsOfType<bool>();
}

// Returns the program's flag closest to `name`, or "" if there is no close match.
std::string ClosestFlag(absl::string_view name) {
  std::vector<std::string> known;
  for (const auto& [flag_name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "absl/")) known.emplace_back(flag_name);
  }
  return ClosestName(name, known);
}

}  // namespace

void SetProgramHelp(absl::string_view purpose, const std::string& libraries) {
  absl::SetProgramUsageMessage(purpose);
  absl::FlagsUsageConfig config;
  // By default, absl lists only the flags defined in the file of main().
  config.contains_help_flags = [](absl::string_view file) {
    return !absl::StrContains(file, "absl/");
  };
  config.version_string = [libraries] {
    return absl::StrCat(ReleaseLine(), "; ", libraries, "\n");
  };
  absl::SetFlagsUsageConfig(config);
}

absl::Status CheckCommandLine(int argc, const char* const* argv,
                              std::string (*suggest)(absl::string_view name)) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    absl::string_view name = argument;
    if (!absl::ConsumePrefix(&name, "--") && !absl::ConsumePrefix(&name, "-")) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", argument, "' is not a flag; expected --name=value"));
    }
    const size_t equals = name.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view value = has_value ? name.substr(equals + 1) : "";
    name = name.substr(0, equals);
    if (IsAnsweredByAbsl(name)) continue;
    absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr) {
      if (!has_value && IsNegatedSwitch(name)) continue;
      std::string meant = suggest == nullptr ? "" : suggest(name);
      if (const std::string closest = ClosestFlag(name); meant.empty() && !closest.empty()) {
        meant = absl::StrCat("--", closest);
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no flag '--", name, "'; ",
          meant.empty() ? "" : absl::StrCat("did you mean ", meant, "? "), "--help lists them"));
    }
    if (!has_value && flag->IsOfType<bool>()) continue;
    if (!has_value && ++i == argc) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
    std::string why;
    if (!flag->ParseFrom(has_value ? value : argv[i], &why)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, "='", has_value ? value : argv[i],
                                                     "' is not valid", why.empty() ? "" : ": ",
                                                     why));
    }
  }
  return absl::OkStatus();
}

}  // namespace torchps
