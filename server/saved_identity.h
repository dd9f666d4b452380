#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/job/server_identity.h"
#include "storage/file_system.h"

namespace torchps {

// What a server's directory remembers of its place in its job, in DIR/server-K.place, so that the
// server's next life can tell the coordinator where it is before any worker has found it there.
struct SavedIdentity {
  ServerIdentity place;
  // Where it listened then: from another address the next life knows that it has moved.
  std::string listened;

  friend bool operator==(const SavedIdentity& a, const SavedIdentity& b) {
    return a.place == b.place && a.listened == b.listened;
  }
};

// Makes `directory` if it is not there. Errors are FileSystem's.
absl::Status SaveIdentity(FileSystem& files, const std::string& directory,
                          const SavedIdentity& place);

// The one place that the directory remembers; none: it remembers none, or, being shared, those of
// several servers, of which this may be any, or what is there cannot be read.
std::optional<SavedIdentity> FindIdentity(FileSystem& files, const std::string& directory);

}  // namespace torchps
