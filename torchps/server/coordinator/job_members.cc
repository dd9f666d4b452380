#include "torchps/server/coordinator/job_members.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/text.h"
#include "torchps/server/coordinator/resumed_state.h"
#include "torchps/transport/server_address.h"

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

namespace {

// Maximum length of a host, device or reason.
constexpr size_t kMaxTextBytes = 512;
// Bounds the memory for a worker's report; higher than any real device count.
constexpr int kMaxReplicas = 256;

// Prepares a worker's text for display. Removes control characters, and truncates to kMaxTextBytes
// at a UTF-8 character boundary.
std::string ForPeople(const std::string& text) {
  size_t end = text.size();
  if (end > kMaxTextBytes) {
    end = kMaxTextBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  return Printable(absl::string_view(text).substr(0, end));
}

// Records the devices of a worker's replicas.
void KeepReplicas(const JoinRequest& request, MemberState* member) {
  for (const ReplicaMember& told : request.member()) {
    if (member->replica_size() == kMaxReplicas) return;
    ReplicaMember& replica = *member->add_replica();
    replica = told;
    replica.set_host(ForPeople(told.host()));
    replica.set_device(ForPeople(told.device()));
  }
}

}  // namespace

absl::StatusOr<JobMembers::Taken> JobMembers::Take(const JoinRequest& request, absl::Duration now) {
  const std::string host = ForPeople(request.host());
  const absl::StatusOr<SlotHolder> holder =
      registry_.Take(request.wanted_slot(), request.nonce(), host, now);
  if (!holder.ok()) return holder.status();
  MemberState& member = accounting_[holder->slot];
  if (member.incarnation() == holder->incarnation) return Taken{*holder, /*is_new=*/false};
  StepFigures figures = std::move(*member.mutable_figures());
  // The new process stays quarantined until it has pushed.
  const bool quarantined = member.quarantined();
  member = MemberState();
  member.set_quarantined(quarantined);
  member.set_slot(holder->slot);
  member.set_incarnation(holder->incarnation);
  member.set_host(host);
  member.set_device(ForPeople(request.device()));
  KeepReplicas(request, &member);
  member.set_state(SlotAccounting::JOINED);
  *member.mutable_figures() = std::move(figures);
  return Taken{*holder, /*is_new=*/true};
}

std::optional<SlotHolder> JobMembers::Predecessor(const JoinRequest& request) const {
  if (!request.predecessor_died()) return std::nullopt;
  return registry_.OtherHolder(request.wanted_slot(), request.nonce());
}

absl::StatusOr<MemberState*> JobMembers::Renew(SlotHolder holder, absl::Duration now) {
  if (absl::Status status = registry_.Renew(holder, now); !status.ok()) return status;
  return &accounting_.at(holder.slot);
}

bool JobMembers::RecordRenewal(const RenewSlotRequest& request, absl::Duration now) {
  const auto at = [now](double age) { return now - absl::Seconds(age); };
  std::map<int, SlotViews::Contact> contacts;
  for (const ServerContact& told : request.contact()) {
    SlotViews::Contact& contact = contacts[told.server()];
    contact.answered = at(told.answered_seconds());
    if (told.has_missed_seconds()) contact.missed = at(told.missed_seconds());
    if (!told.has_first_reached_seconds() || !told.has_last_reached_seconds()) continue;
    contact.first_reached = at(told.first_reached_seconds());
    contact.last_reached = at(told.last_reached_seconds());
  }
  return views_.RecordRenewal(request.slot(), std::move(contacts),
                              absl::Seconds(request.stalled_seconds()), now);
}

void JobMembers::End(SlotHolder holder, SlotAccounting::State state, const std::string& reason) {
  registry_.Leave(holder);
  views_.Forget(holder.slot);
  const auto found = accounting_.find(holder.slot);
  // If several slots end at once, the end of another one may have forgotten this one.
  if (found == accounting_.end()) return;
  MemberState& member = found->second;
  member.set_lease(0);
  member.set_evaluating(0);
  // Only the ended incarnation could repeat the call.
  member.clear_answer();
  if (member.state() != SlotAccounting::FINISHED) {
    member.set_state(state);
    member.set_reason(ForPeople(reason));
  }
  ForgetUntrained();
}

void JobMembers::ForgetUntrained() {
  std::map<Incarnation, SlotId> untrained;
  for (const auto& [slot, member] : accounting_) {
    const StepFigures& figures = member.figures();
    const bool has_trained = figures.samples() > 0 || figures.pushes() > 0 ||
                             figures.lost_samples() > 0 || figures.skipped_nonfinite() > 0 ||
                             figures.overflows() > 0 || member.quarantined();
    if (!has_trained && !IsLive(slot)) untrained.emplace(member.incarnation(), slot);
  }
  for (auto it = untrained.begin(); untrained.size() > kMaxUntrainedDeparted;
       it = untrained.erase(it)) {
    accounting_.erase(it->second);
  }
}

bool JobMembers::IsLive(SlotId slot) const {
  return accounting_.count(slot) > 0 && registry_.IsLive(GetHolder(slot));
}

bool JobMembers::AllQuarantined() const {
  return std::all_of(accounting_.begin(), accounting_.end(),
                     [](const auto& entry) { return entry.second.quarantined(); });
}

bool JobMembers::IsLatest(SlotHolder holder) const {
  const auto it = accounting_.find(holder.slot);
  if (it == accounting_.end()) {
    return holder.slot >= 0 && holder.slot < kMaxSlots && holder.incarnation > 0 &&
           holder.incarnation < registry_.next_incarnation();
  }
  return it->second.incarnation() == holder.incarnation;
}

bool JobMembers::Awaits(SlotId slot) const {
  return IsLive(slot) && accounting_.at(slot).awaits_start();
}

int JobMembers::awaiting() const {
  return static_cast<int>(std::count_if(accounting_.begin(), accounting_.end(),
                                        [&](const auto& entry) { return Awaits(entry.first); }));
}

SlotId JobMembers::FirstAwaiting() const {
  for (const auto& [slot, member] : accounting_) {
    if (Awaits(slot)) return slot;
  }
  return -1;
}

int64_t JobMembers::MostSteps() const {
  uint64_t most = 0;
  for (const auto& [slot, member] : accounting_) most = std::max(most, member.figures().pushes());
  return static_cast<int64_t>(most);
}

void JobMembers::AddFigures(const StepFigures& more, MemberState* member) {
  StepFigures& sum = *member->mutable_figures();
  sum.set_samples(sum.samples() + more.samples());
  sum.set_pushes(sum.pushes() + more.pushes());
  sum.set_loss_sum(sum.loss_sum() + more.loss_sum());
  sum.set_samples_without_loss(sum.samples_without_loss() + more.samples_without_loss());
  sum.set_compute_seconds(sum.compute_seconds() + more.compute_seconds());
  sum.set_push_seconds(sum.push_seconds() + more.push_seconds());
  sum.set_pull_seconds(sum.pull_seconds() + more.pull_seconds());
  sum.set_wait_seconds(sum.wait_seconds() + more.wait_seconds());
  sum.set_data_seconds(sum.data_seconds() + more.data_seconds());
  sum.set_other_seconds(sum.other_seconds() + more.other_seconds());
  sum.set_rejected_pushes(sum.rejected_pushes() + more.rejected_pushes());
  sum.set_skipped_nonfinite(sum.skipped_nonfinite() + more.skipped_nonfinite());
  sum.set_overflows(sum.overflows() + more.overflows());
  sum.set_lost_samples(sum.lost_samples() + more.lost_samples());
  sum.set_stopped_steps(sum.stopped_steps() + more.stopped_steps());
  sum.set_rolled_back_blocks(sum.rolled_back_blocks() + more.rolled_back_blocks());
  sum.set_rolled_back_pushes(sum.rolled_back_pushes() + more.rolled_back_pushes());
  sum.set_nonfinite_in_a_row(more.nonfinite_in_a_row());
}

void JobMembers::Describe(JobStatus* status) const {
  for (const auto& [slot, member] : accounting_) {
    SlotAccounting& accounting = *status->add_slot();
    accounting.set_slot(slot);
    accounting.set_incarnation(member.incarnation());
    accounting.set_host(member.host());
    accounting.set_device(member.device());
    *accounting.mutable_member() = member.replica();
    accounting.set_state(member.state());
    *accounting.mutable_figures() = member.figures();
    accounting.set_epoch(member.epoch());
    accounting.set_reason(member.reason());
    accounting.set_batch_size(member.batch_size());
    accounting.set_stalled_seconds(absl::ToDoubleSeconds(views_.stalled_for(slot)));
  }
}

void JobMembers::SaveTo(CoordinatorState* state) const {
  state->set_next_incarnation(registry_.next_incarnation());
  for (const auto& [slot, member] : accounting_) {
    MemberState& saved = *state->add_member();
    saved = member;
    saved.set_nonce(registry_.GetNonce(GetHolder(slot)));
    saved.set_live(saved.nonce() != 0);
  }
}

absl::Status JobMembers::Restore(const CoordinatorState& state, absl::Duration now) {
  for (const MemberState& saved : state.member()) {
    if (saved.slot() < 0 || saved.slot() >= kMaxSlots || accounting_.count(saved.slot()) != 0) {
      return DamagedState("invalid or repeated slot ", saved.slot());
    }
    MemberState& member = accounting_[saved.slot()];
    member = saved;
    if (!SlotAccounting::State_IsValid(member.state()))
      member.set_state(SlotAccounting::STATE_UNSPECIFIED);
    if (!saved.live()) continue;
    const absl::Status status =
        registry_.Restore(GetHolder(saved.slot()), saved.nonce(), saved.host(), now);
    if (!status.ok()) return DamagedState(status.message());
  }
  ForgetUntrained();
  return absl::OkStatus();
}

}  // namespace torchps
