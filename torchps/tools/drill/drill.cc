#include "torchps/tools/drill/drill.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/tools/base/format.h"

namespace torchps {
namespace {

// Number of connections of each kind in UnauthenticatedClients. The total exceeds the server's
// limit for waiting connections (torchps/server/rpc/connection_filter.h), so that the server must
// drop some.
constexpr int kStrangersOfEach = 200;

// Interval between checks of the copies, and the timeout for each server.
constexpr absl::Duration kCopiesLook = absl::Milliseconds(250);
constexpr absl::Duration kCopiesPatience = absl::Milliseconds(200);

std::string Ways(const std::vector<NetworkLink>& links) {
  return absl::StrJoin(links, ", ", [](std::string* text, const NetworkLink& link) {
    absl::StrAppend(text, "worker ", link.worker, " and server ", link.server);
  });
}

std::set<int> WorkersHit(const Fault& fault) {
  std::set<int> hit;
  for (const NetworkLink& link : fault.links) hit.insert(link.worker);
  if (fault.is_signal() && !fault.part.is_server) hit.insert(fault.part.index);
  return hit;
}

}  // namespace

bool BreaksNetwork(const std::vector<FaultRule>& rules) {
  return std::any_of(rules.begin(), rules.end(), [](const FaultRule& rule) {
    return rule.kind == Fault::Kind::kCut || rule.kind == Fault::Kind::kReset;
  });
}

Drill::Drill(const FaultSchedule::Options& options, bool has_log, RecoveryWatch::Connect connect,
             std::ostream& out, const Clock& clock)
    : schedule_(options),
      length_(options.length),
      breaks_network_(BreaksNetwork(options.rules)),
      out_(out),
      watch_(connect, clock),
      copies_(options.servers, has_log, connect) {}

absl::Duration Drill::NextAt() const {
  const absl::Duration next = schedule_.NextAt();
  return losses_due_.empty() || look_at_copies_at_ > length_ ? next
                                                             : std::min(next, look_at_copies_at_);
}

std::vector<Fault> Drill::Take(absl::Duration now) {
  std::vector<Fault> due;
  for (Fault& fault : schedule_.Take(now)) {
    if (fault.kind != Fault::Kind::kLoseDisk) {
      due.push_back(std::move(fault));
      continue;
    }
    if (losses_due_.empty()) look_at_copies_at_ = now;
    losses_due_.push_back(std::move(fault));
  }
  if (losses_due_.empty() || now < look_at_copies_at_ || now > length_) return due;
  if (copies_.AreWhole(kCopiesPatience)) {
    due.push_back(std::move(losses_due_.front()));
    losses_due_.pop_front();
  }
  look_at_copies_at_ = now + kCopiesLook;
  return due;
}

void Drill::OnFault(const Fault& fault, absl::Duration now) {
  const bool server = fault.part.is_server;
  switch (fault.kind) {
    case Fault::Kind::kKill:
      ++(server ? figures_.server_kills : figures_.worker_kills);
      if (fault.part.stage >= 0) ++figures_.stage_kills[fault.part.stage];
      killed_at_[fault.part] = now;
      Begin(fault, now);  // OnDeath() is called later
      return;
    case Fault::Kind::kLoseDisk:
      ++figures_.disks_lost;
      killed_at_[fault.part] = now;
      copies_.OnLoss(fault.part.index);
      out_ << fault.part.text() << " loses its disk" << std::endl;
      Begin(fault, now);
      return;
    case Fault::Kind::kFreeze:
      ++(server ? figures_.server_freezes : figures_.worker_freezes);
      out_ << fault.part.text() << " is frozen" << std::endl;
      Begin(fault, now);
      return;
    case Fault::Kind::kThaw:
      out_ << fault.part.text() << " resumes" << std::endl;
      End(fault, now);
      return;
    case Fault::Kind::kCut:
      relays_.Cut(fault.links);
      out_ << "network cut between " << Ways(fault.links) << std::endl;
      Begin(fault, now);
      return;
    case Fault::Kind::kJoin:
      relays_.Join(fault.links);
      out_ << "network restored between " << Ways(fault.links) << std::endl;
      End(fault, now);
      return;
    case Fault::Kind::kReset:
      relays_.Reset(fault.links);
      out_ << "connections reset between " << Ways(fault.links) << std::endl;
      Begin(fault, now);
      return;
    case Fault::Kind::kCrowd: {
      const auto address = addresses_.find(fault.part.index);
      if (address == addresses_.end()) return;
      const int came =
          unauthenticated_clients_.Come(fault.part.index, address->second, kStrangersOfEach);
      out_ << Count(came, "half-open connection") << " to " << fault.part.text() << std::endl;
      Begin(fault, now);
      return;
    }
    case Fault::Kind::kDisperse:
      unauthenticated_clients_.Go(fault.part.index);
      out_ << "half-open connections to " << fault.part.text() << " closed" << std::endl;
      End(fault, now);
      return;
  }
}

void Drill::Begin(const Fault& fault, absl::Duration now) {
  const int stall = stalls_.Begin(FindFlag(fault.kind), WorkersHit(fault), now);
  if (GetEnd(fault.kind).has_value()) {
    lasting_.push_back({fault, stall});
  } else {
    stalls_.End(stall, now);
  }
}

void Drill::End(const Fault& end, absl::Duration now) {
  const auto found = std::find_if(lasting_.begin(), lasting_.end(), [&](const Lasting& lasting) {
    return GetEnd(lasting.fault.kind) == end.kind && lasting.fault.part == end.part &&
           lasting.fault.links == end.links;
  });
  if (found == lasting_.end()) return;
  stalls_.End(found->stall, now);
  lasting_.erase(found);
}

void Drill::OnDeath(const PartName& part, absl::Duration now) {
  const auto killed = killed_at_.find(part);
  const absl::Duration died = killed == killed_at_.end() ? now : killed->second;
  killed_at_.erase(part);
  if (!part.is_server) return;
  watch_.OnDeath(part.index, died);
  copies_.OnDeath(part.index);
}

void Drill::OnReturn(const PartName& part, const std::string& address, absl::Duration now) {
  if (!part.is_server) return;
  addresses_[part.index] = address;
  watch_.OnReturn(part.index, address, now);
  copies_.OnReturn(part.index, address);
}

absl::StatusOr<std::vector<std::string>> Drill::WorkerEnvironment(
    int worker, const std::vector<std::string>& servers) {
  if (!breaks_network_) return std::vector<std::string>();
  const absl::StatusOr<std::string> relays = relays_.Open(worker, servers);
  if (!relays.ok()) return relays.status();
  return std::vector<std::string>{absl::StrCat("TORCHPS_RELAYS=", *relays)};
}

DrillFigures Drill::figures() const {
  DrillFigures figures = figures_;
  figures.disks_spared = static_cast<int>(losses_due_.size());
  figures.recoveries = watch_.recoveries();
  figures.faults = stalls_.by_kind();
  figures.longest_stall = stalls_.longest_stall();
  return figures;
}

}  // namespace torchps
