#pragma once

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Names tests that run once per encoding. GoogleTest does not allow underscores.
inline std::string EncodingName(const ::testing::TestParamInfo<EncodingSpec::Kind>& info) {
  std::string name = EncodingSpec::Kind_Name(info.param);
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  return name;
}

}  // namespace torchps
