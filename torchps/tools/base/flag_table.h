#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Describes one flag of a subcommand.
struct FlagSpec {
  std::string name;         // without dashes
  std::string placeholder;  // "FILE", "N"; empty for a switch, which does not accept a value
  std::string help;         // one or more sentences
  bool repeatable = false;
  char letter = 0;  // short form: -L for --name; 0 if the flag does not have a short form
  // Flag that must also be given, because this flag has an effect only with it. May be empty.
  std::string needs = "";
  // Common values, for completion. May be empty.
  std::vector<std::string> choices = {};
};

// Holds the parsed values by flag. Immutable after FlagTable::Parse; copyable.
class FlagValues {
 public:
  bool Has(absl::string_view name) const { return values_.count(std::string(name)) > 0; }
  // Returns the value, or `fallback` if the flag is not set.
  std::string Get(absl::string_view name, absl::string_view fallback = "") const;
  // Returns the values of a repeatable flag, in command-line order.
  std::vector<std::string> All(absl::string_view name) const;
  // Returns the value as an integer. INVALID_ARGUMENT: not an integer from `least` to `most`; the
  // message names the flag, the value and the range.
  absl::StatusOr<int64_t> Integer(absl::string_view name, int64_t fallback, int64_t least,
                                  int64_t most) const;

 private:
  friend class FlagTable;
  std::map<std::string, std::vector<std::string>> values_;
};

// Parses the flags of one subcommand and writes the help text. psctl does not use absl flags
// because flags differ by subcommand and some can be repeated. Immutable, so thread-safe.
class FlagTable {
 public:
  // `command` appears in messages: "psctl run". A word that is not a flag sets the flag `bare`;
  // several such words are allowed if `bare` is repeatable. If `bare` is empty, such words are
  // errors. `suggest` may return a replacement for an unknown flag `name`. If it returns an empty
  // string, the message suggests the most similar flag.
  FlagTable(std::string command, std::vector<FlagSpec> flags, std::string bare = "",
            std::string (*suggest)(absl::string_view name) = nullptr);

  // Parses `--name=value`, `--name value` and, for switches, `--name`; also the short form `-n`. If
  // a flag that is not repeatable appears twice, the last value is used, so that a script's value
  // can be overridden. INVALID_ARGUMENT: unknown flag (the message suggests the most similar one),
  // missing or unexpected value, missing flag that another one needs, or a second bare word.
  absl::StatusOr<FlagValues> Parse(const std::vector<std::string>& arguments) const;

  // Returns the help text: one paragraph for each flag, wrapped to 80 columns.
  std::string Help() const;

 private:
  const FlagSpec* Find(absl::string_view name) const;
  absl::Status UnknownFlag(const std::string& name) const;
  // Returns the flag name in "--name" or "-n", or "" if `typed` is not a flag.
  std::string NameIn(absl::string_view typed) const;
  absl::Status Error(absl::string_view message) const;

  const std::string command_;
  const std::vector<FlagSpec> flags_;
  const std::string bare_;
  std::string (*const suggest_)(absl::string_view name);
};

// Describes a psctl command for completion scripts and the manual page.
struct CommandSpec {
  std::string name;     // "run"
  std::string summary;  // one sentence
  std::string example;  // a command line
  std::vector<FlagSpec> flags;
  // the flag that a word without a flag sets; empty if the command does not accept such a word
  std::string bare;
};

}  // namespace torchps
