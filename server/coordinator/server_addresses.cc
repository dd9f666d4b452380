#include "server/coordinator/server_addresses.h"

#include "absl/strings/str_cat.h"
#include "common/text.h"
#include "rpc/server_address.h"

namespace torchps {

void ServerAddresses::MakeRoom(int server_count) {
  while (static_cast<int>(server_addresses_.size()) < server_count) {
    ServerAddress place;
    place.set_server_index(static_cast<int>(server_addresses_.size()));
    server_addresses_.push_back(std::move(place));
  }
}

void ServerAddresses::CheckAndLearn(const JoinRequest& request, int server_count) {
  if (request.server_address_size() != server_count) return;
  MakeRoom(server_count);
  for (int i = 0; i < server_count; ++i) {
    const std::string& address = request.server_address(i);
    if (address.empty() || server_addresses_[i].server_incarnation() != 0) continue;
    // Addresses appear in messages. An address with control characters is unreachable anyway.
    server_addresses_[i].set_address(Printable(address));
  }
}

absl::StatusOr<bool> ServerAddresses::Register(const ServerAddress& place, int server_count) {
  const int index = place.server_index();
  if (index < 0 || index >= server_count) {
    return absl::FailedPreconditionError(absl::StrCat("there is no server ", index,
                                                      "; the running job has ", server_count,
                                                      " servers, numbered from 0"));
  }
  if (absl::Status valid = CheckServerAddress(place.address()); !valid.ok()) return valid;
  MakeRoom(server_count);
  ServerAddress& known = server_addresses_[index];
  if (known.address() == place.address() &&
      known.server_incarnation() == place.server_incarnation()) {
    return false;
  }
  known.set_address(place.address());
  known.set_server_incarnation(place.server_incarnation());
  return true;
}

std::vector<std::string> ServerAddresses::addresses() const {
  std::vector<std::string> addresses;
  for (const ServerAddress& place : server_addresses_) addresses.push_back(place.address());
  return addresses;
}

void ServerAddresses::SaveTo(CoordinatorState* state) const {
  for (const ServerAddress& place : server_addresses_) state->add_server_address(place.address());
}

void ServerAddresses::Restore(const CoordinatorState& state) {
  server_addresses_.clear();
  MakeRoom(state.server_address_size());
  for (int i = 0; i < state.server_address_size(); ++i) {
    server_addresses_[i].set_address(state.server_address(i));
  }
}

}  // namespace torchps
