#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// Identifies one server of a job, with the addresses that workers use for this server and the
// coordinator.
struct ServerIdentity {
  uint64_t job_id = 0;
  int server_index = 0;
  int server_count = 0;
  // HOST:PORT; empty if unknown or inside this process.
  std::string address;
  std::string coordinator;

  friend bool operator==(const ServerIdentity& a, const ServerIdentity& b) {
    return a.job_id == b.job_id && a.server_index == b.server_index &&
           a.server_count == b.server_count && a.address == b.address &&
           a.coordinator == b.coordinator;
  }
};

}  // namespace torchps
