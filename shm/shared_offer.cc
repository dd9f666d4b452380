#include "shm/shared_offer.h"

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer) {
  SharedMemory message;
  message.set_pid(offer.pid);
  message.set_fd(offer.fd);
  message.set_bytes(offer.bytes);
  message.set_nonce(offer.nonce);
  return message;
}

SharedSegment::Offer DecodeOffer(const SharedMemory& message) {
  return {message.pid(), message.fd(), message.bytes(), message.nonce()};
}

}  // namespace torchps
