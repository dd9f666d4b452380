// slow_link: a link with a limited rate and a delay between two network namespaces.
//
//   slow_link --ends=NAMESPACE,NAMESPACE --devices=NAME,NAME --rate_mbit=1000 --delay_us=1000
//
// Makes a TUN device in each namespace and forwards packets between them. Packets leave in order at
// the given rate and arrive after the delay. bench/link.py uses this program if the kernel lacks
// netem. Prints "ready". Exits, removing the devices, at the end of standard input. Needs root.
//
// Packets are up to 64 KiB, as a network card with segmentation offload receives them, and are
// delivered whole. At 10 Gbit/s this process therefore handles 20,000 packets per second instead of
// 800,000. bench/README.md describes the accuracy of rate and delay.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

ABSL_FLAG(std::vector<std::string>, ends, {}, "the two network namespaces");
ABSL_FLAG(std::vector<std::string>, devices, {}, "the device's name in each namespace");
ABSL_FLAG(int, rate_mbit, 1000, "rate of each direction, in 1e6 bits per second");
ABSL_FLAG(int, delay_us, 1000, "delay of each direction; the round trip is twice as long");

namespace torchps {
namespace {

// The kernel's offload header, and the largest IP packet.
constexpr size_t kPacketBytes = 16 + (64 << 10);
// Maximum queueing time in addition to the delay. Later packets are dropped, as in a switch.
constexpr absl::Duration kLongestQueue = absl::Milliseconds(50);

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Opens the TUN device `name` in the network namespace `network`, into which it moves this thread.
absl::StatusOr<int> OpenDevice(const std::string& network, const std::string& name) {
  const int space = open(absl::StrCat("/run/netns/", network).c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) {
    return SystemError(absl::StrCat("cannot enter the network namespace ", network));
  }
  close(space);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request = {};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0 ||
      ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    return SystemError(absl::StrCat("cannot make the TUN device ", name));
  }
  return device;
}

// Carries the packets of one direction, on a separate thread. Exists until the process exits.
class Direction {
 public:
  Direction(int from, int to, double bytes_per_second, absl::Duration delay)
      : from_(from), to_(to), bytes_per_second_(bytes_per_second), delay_(delay) {}

  void Run() {
    // With the default timer slack, the kernel would lengthen each sleep by 50 us.
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
      Deliver(absl::Now());
      Await();
      Take(absl::Now());
    }
  }

 private:
  struct Packet {
    absl::Time arrives;
    size_t size = 0;
    std::unique_ptr<char[]> bytes;
  };

  // Blocks until `from_` has a packet or it is time to deliver one to `to_`.
  void Await() const {
    pollfd sent = {from_, POLLIN, 0};
    timespec left = {};
    if (!on_the_way_.empty()) {
      left = absl::ToTimespec(
          std::max(on_the_way_.front().arrives - absl::Now(), absl::ZeroDuration()));
    }
    ppoll(&sent, 1, on_the_way_.empty() ? nullptr : &left, nullptr);
  }

  void Take(absl::Time now) {
    for (;;) {
      if (spare_.empty()) spare_.emplace_back(new char[kPacketBytes]);
      const ssize_t got = read(from_, spare_.back().get(), kPacketBytes);
      if (got <= 0) return;
      if (line_is_free_ > now + kLongestQueue) continue;
      line_is_free_ = std::max(line_is_free_, now) +
                      absl::Seconds(static_cast<double>(got) / bytes_per_second_);
      on_the_way_.push_back(
          {line_is_free_ + delay_, static_cast<size_t>(got), std::move(spare_.back())});
      spare_.pop_back();
    }
  }

  void Deliver(absl::Time now) {
    while (!on_the_way_.empty() && on_the_way_.front().arrives <= now) {
      Packet& packet = on_the_way_.front();
      // If the device drops the packet, TCP resends it.
      [[maybe_unused]] const ssize_t written = write(to_, packet.bytes.get(), packet.size);
      spare_.push_back(std::move(packet.bytes));
      on_the_way_.pop_front();
    }
  }

  const int from_;
  const int to_;
  const double bytes_per_second_;
  const absl::Duration delay_;
  absl::Time line_is_free_ = absl::InfinitePast();
  std::deque<Packet> on_the_way_;
  std::vector<std::unique_ptr<char[]>> spare_;
};

absl::Status CarryPackets() {
  const std::vector<std::string> ends = absl::GetFlag(FLAGS_ends);
  const std::vector<std::string> devices = absl::GetFlag(FLAGS_devices);
  if (ends.size() != 2 || devices.size() != 2) {
    return absl::InvalidArgumentError("a link needs two --ends and two --devices");
  }
  const absl::StatusOr<int> first = OpenDevice(ends[0], devices[0]);
  if (!first.ok()) return first.status();
  const absl::StatusOr<int> second = OpenDevice(ends[1], devices[1]);
  if (!second.ok()) return second.status();
  const double bytes_per_second = absl::GetFlag(FLAGS_rate_mbit) * 1e6 / 8;
  const absl::Duration delay = absl::Microseconds(absl::GetFlag(FLAGS_delay_us));
  Direction there(*first, *second, bytes_per_second, delay);
  Direction back(*second, *first, bytes_per_second, delay);
  std::thread([&there] { there.Run(); }).detach();
  std::thread([&back] { back.Run(); }).detach();
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  _exit(0);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  std::fprintf(stderr, "slow_link: %s\n", torchps::CarryPackets().ToString().c_str());
  return 1;
}
