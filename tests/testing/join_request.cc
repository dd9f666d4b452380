#include "tests/testing/join_request.h"

#include "tests/testing/async_job.h"
#include "torchps/common/types.h"

namespace torchps {

JoinRequest SmallJoin() {
  JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  JobSpec& job = *request.mutable_job();
  job = AsyncUnlessSaid(JobSpec());
  job.set_workers(2);
  job.mutable_training()->set_epochs(1);
  job.mutable_training()->set_batch_size(4);
  job.mutable_training()->set_lease_batches(4);
  job.mutable_optimizer()->mutable_sgd();
  job.mutable_optimizer()->set_learning_rate(0.1);
  SegmentProto& segment = *request.mutable_layout()->add_segment();
  segment.set_name("weight");
  segment.add_shape(3);
  segment.set_group(-1);
  request.set_wanted_slot(-1);
  request.set_host("here");
  request.set_device("cpu");
  request.set_train_samples(40);
  request.set_data_fingerprint(DataFingerprint{1, 2}.number());
  request.set_server_count(1);
  return request;
}

JoinRequest JoinFor(const HelloRequest& hello, const std::string& address, uint64_t nonce,
                    int64_t train_samples) {
  JoinRequest request;
  request.set_protocol_version(hello.protocol_version());
  *request.mutable_job() = hello.job();
  *request.mutable_layout() = hello.layout();
  request.set_wanted_slot(-1);
  request.set_nonce(nonce);
  request.set_train_samples(train_samples);
  request.set_server_count(1);
  request.add_server_address(address);
  return request;
}

}  // namespace torchps
