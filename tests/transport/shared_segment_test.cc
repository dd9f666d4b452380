#include "torchps/transport/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = SharedSegment::kHeaderBytes + 10000;

std::unique_ptr<SharedSegment> MakeSegment() {
  auto segment = SharedSegment::Create("test", kBytes);
  EXPECT_TRUE(segment.ok()) << segment.status();
  return *std::move(segment);
}

void ExpectRefusal(const SharedSegment::Offer& offer, const std::string& words) {
  const auto opened = SharedSegment::Open(offer, kBytes);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(words));
}

// Holds a segment's bytes in a file that is not a valid segment.
class Impostor {
 public:
  explicit Impostor(const SharedSegment& original)
      : fd_(memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING)), offer_(original.offer()) {
    EXPECT_EQ(write(fd_, original.data(), original.bytes()), static_cast<ssize_t>(kBytes));
    EXPECT_EQ(fchmod(fd_, 0600), 0);
    offer_.fd = fd_;
  }
  ~Impostor() { close(fd_); }

  void Seal(int seals) { EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0); }
  int fd() const { return fd_; }
  const SharedSegment::Offer& offer() const { return offer_; }

 private:
  const int fd_;
  SharedSegment::Offer offer_;
};

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Counts the mapped files with `label` in the name.
int Mappings(const std::string& label) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(label) != std::string::npos) ++count;
  }
  return count;
}

TEST(SharedSegmentTest, AnOpenedSegmentShowsTheCreatorsWrites) {
  const auto segment = MakeSegment();
  const auto opened = SharedSegment::Open(segment->offer(), kBytes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_NE((*opened)->data(), segment->data());
  EXPECT_EQ((*opened)->data()[kBytes - 1], 0);
  segment->data()[kBytes - 1] = 42;
  EXPECT_EQ((*opened)->data()[kBytes - 1], 42);
}

TEST(SharedSegmentTest, TwoSegmentsHaveDifferentNonces) {
  EXPECT_NE(MakeSegment()->nonce(), MakeSegment()->nonce());
}

TEST(SharedSegmentTest, OutlivesTheCreatorsProcess) {
  int answer[2];
  ASSERT_EQ(pipe(answer), 0);
  int stay[2];
  ASSERT_EQ(pipe(stay), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto segment = SharedSegment::Create("test", kBytes);
    if (!segment.ok()) _exit(1);
    std::memset((*segment)->data() + SharedSegment::kHeaderBytes, 7, 10000);
    const SharedSegment::Offer offer = (*segment)->offer();
    if (write(answer[1], &offer, sizeof(offer)) != sizeof(offer)) _exit(1);
    char byte;
    _exit(read(stay[0], &byte, 1) == 1 ? 0 : 1);
  }
  SharedSegment::Offer offer;
  ASSERT_EQ(read(answer[0], &offer, sizeof(offer)), static_cast<ssize_t>(sizeof(offer)));
  EXPECT_EQ(offer.pid, child);
  const auto opened = SharedSegment::Open(offer, kBytes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  for (size_t i = SharedSegment::kHeaderBytes; i < kBytes; ++i) {
    ASSERT_EQ((*opened)->data()[i], 7);
  }
  ExpectRefusal(offer, "cannot be reached");
  for (const int fd : {answer[0], answer[1], stay[0], stay[1]}) close(fd);
}

TEST(SharedSegmentTest, IsRemovedWhenBothSidesReleaseIt) {
  {
    auto made = SharedSegment::Create("ephemeral", kBytes);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto opened = SharedSegment::Open((*made)->offer(), kBytes);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(Mappings("ephemeral"), 2);
  }
  EXPECT_EQ(Mappings("ephemeral"), 0);
}

TEST(SharedSegmentTest, RefusesAFileThatIsNotTheOfferedSegment) {
  const auto segment = MakeSegment();
  SharedSegment::Offer offer = segment->offer();
  offer.nonce ^= 1;
  ExpectRefusal(offer, "is not the offered segment");
  // Zeros with the right size are not a segment.
  const Impostor zeros(*segment);
  EXPECT_EQ(ftruncate(zeros.fd(), 0), 0);
  EXPECT_EQ(ftruncate(zeros.fd(), kBytes), 0);
  EXPECT_EQ(fcntl(zeros.fd(), F_ADD_SEALS, kAllSeals), 0);
  offer = zeros.offer();
  ExpectRefusal(offer, "is not the offered segment");
}

TEST(SharedSegmentTest, RefusesASizeOtherThanTheExpectedOne) {
  const auto segment = MakeSegment();
  SharedSegment::Offer offer = segment->offer();
  offer.bytes = kBytes + 1;
  ExpectRefusal(offer, "has an offered size of");
  // The offer names the expected size, but the file is larger.
  const auto larger = SharedSegment::Create("test", kBytes + 1);
  ASSERT_TRUE(larger.ok());
  offer = (*larger)->offer();
  offer.bytes = kBytes;
  ExpectRefusal(offer, "bytes; expected");
}

TEST(SharedSegmentTest, RefusesAFileThatCanShrink) {
  const auto segment = MakeSegment();
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK}) {
    Impostor impostor(*segment);
    if (seals != 0) impostor.Seal(seals);
    ExpectRefusal(impostor.offer(), "is not sealed");
  }
  Impostor good(*segment);
  good.Seal(kAllSeals);
  EXPECT_TRUE(SharedSegment::Open(good.offer(), kBytes).ok());
}

TEST(SharedSegmentTest, RefusesAFileReadableByOthers) {
  const auto segment = MakeSegment();
  for (const mode_t mode : {0644, 0660, 0777, 0400}) {
    Impostor impostor(*segment);
    impostor.Seal(kAllSeals);
    ASSERT_EQ(fchmod(impostor.fd(), mode), 0);
    ExpectRefusal(impostor.offer(), "has mode");
  }
}

TEST(SharedSegmentTest, RefusesAnotherUsersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the owner";
  const auto segment = MakeSegment();
  Impostor impostor(*segment);
  impostor.Seal(kAllSeals);
  if (fchown(impostor.fd(), 12345, -1) != 0)
    GTEST_SKIP() << "this root user cannot change the owner";
  ExpectRefusal(impostor.offer(), "belongs to user 12345");
}

TEST(SharedSegmentTest, RefusesOtherFilesWithoutOpeningThem) {
  const auto segment = MakeSegment();
  SharedSegment::Offer offer = segment->offer();
  // Open() must not open a pipe, because that would wait for a writer.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  offer.fd = ends[0];
  ExpectRefusal(offer, "is not memory");
  close(ends[0]);
  close(ends[1]);
  const int device = open("/dev/null", O_RDONLY | O_CLOEXEC);
  offer.fd = device;
  ExpectRefusal(offer, "is not memory");
  close(device);
}

TEST(SharedSegmentTest, RefusesAMissingDescriptorOrProcess) {
  const auto segment = MakeSegment();
  SharedSegment::Offer offer = segment->offer();
  offer.fd = 1 << 20;
  ExpectRefusal(offer, "cannot be reached");
  offer.fd = -1;
  ExpectRefusal(offer, "");
  offer = segment->offer();
  offer.pid = 1 << 30;  // above every process number
  ExpectRefusal(offer, "cannot be reached");
  offer.pid = 0;
  ExpectRefusal(offer, "");
  offer.pid = -1;
  ExpectRefusal(offer, "");
}

}  // namespace
}  // namespace torchps
