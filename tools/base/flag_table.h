#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// One flag of a subcommand.
struct FlagSpec {
  std::string name;         // without dashes
  std::string placeholder;  // "FILE", "N"; empty: a switch that takes no value
  std::string help;         // one or more sentences
  bool repeatable = false;
  char letter = 0;  // -L says the same as --name; 0: no letter does
  // Without this other flag it would do nothing, and is refused. Empty: it needs none.
  std::string needs = "";
  // The usual values, for completion. Empty: it has no such list.
  std::vector<std::string> choices = {};
};

// What was typed: values by flag. Immutable after FlagTable::Parse; copyable.
class FlagValues {
 public:
  bool Has(absl::string_view name) const { return values_.count(std::string(name)) > 0; }
  // The value, or `fallback` if the flag was not given.
  std::string Get(absl::string_view name, absl::string_view fallback = "") const;
  // All values of a repeatable flag in the order typed.
  std::vector<std::string> All(absl::string_view name) const;
  // INVALID_ARGUMENT names the flag, the value and the range.
  absl::StatusOr<int64_t> Integer(absl::string_view name, int64_t fallback, int64_t least,
                                  int64_t most) const;

 private:
  friend class FlagTable;
  std::map<std::string, std::vector<std::string>> values_;
};

// The flags of one subcommand: reads a command line and writes its help. psctl has its own because
// each subcommand has its own flags and some may be repeated, which absl's flags know nothing of.
// Immutable, so thread-safe.
class FlagTable {
 public:
  // `command` stands in messages: "psctl run". A word that is no flag is a value of the flag `bare`:
  // the only one, or one of several if that flag is repeatable. Empty: there is no such word.
  // `suggest` may return what to type in place of an unknown flag, from its name; if it returns
  // nothing, the message offers the most similar flag.
  FlagTable(std::string command, std::vector<FlagSpec> flags, std::string bare = "",
            std::string (*suggest)(absl::string_view name) = nullptr);

  // Takes `--name=value`, `--name value` and, for switches, `--name`; a flag's letter, as `-n`, in
  // place of its name. INVALID_ARGUMENT: unknown flag (with the most similar one), missing or
  // unwanted value, a flag without the one that it needs, a second bare word. Of a flag that
  // is not repeatable the last value counts, so that a script's can be overridden.
  absl::StatusOr<FlagValues> Parse(const std::vector<std::string>& arguments) const;

  // One flag per paragraph: its form, and its help wrapped to 80 columns.
  std::string Help() const;

 private:
  const FlagSpec* Find(absl::string_view name) const;
  absl::Status UnknownFlag(const std::string& name) const;
  // The name that is meant by "--name" or "-n"; "" if that is no flag's form.
  std::string NameIn(absl::string_view typed) const;
  absl::Status Error(absl::string_view message) const;

  const std::string command_;
  const std::vector<FlagSpec> flags_;
  const std::string bare_;
  std::string (*const suggest_)(absl::string_view name);
};

}  // namespace torchps
