#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/job/server_identity.h"
#include "storage/file_system.h"

namespace torchps {

// Identity of a server within a job, saved in DIR/server-K.place. After a restart, the server can
// report the address to the coordinator before a worker connects.
struct SavedIdentity {
  ServerIdentity place;
  // The listen address at that time. If it differs after a restart, the server has moved.
  std::string listened;

  friend bool operator==(const SavedIdentity& a, const SavedIdentity& b) {
    return a.place == b.place && a.listened == b.listened;
  }
};

// Writes the identity, and creates `directory` if needed. Errors as FileSystem.
absl::Status SaveIdentity(FileSystem& files, const std::string& directory,
                          const SavedIdentity& place);

// Returns the identity saved in the directory. Returns nullopt if it is missing or unreadable, or
// if several servers share the directory, so that their identities are ambiguous.
std::optional<SavedIdentity> FindIdentity(FileSystem& files, const std::string& directory);

}  // namespace torchps
