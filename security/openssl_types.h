#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace torchps {

// Owning pointers to OpenSSL objects. Include only in source files of security/.
template <auto Function>
struct OpensslFree {
  template <class Object>
  void operator()(Object* object) const {
    Function(object);
  }
};

using BioPointer = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using X509Pointer = std::unique_ptr<X509, OpensslFree<X509_free>>;
using X509StoreContextPointer = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;
using GeneralNamesPointer = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;
using SslContextPointer = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslPointer = std::unique_ptr<SSL, OpensslFree<SSL_free>>;

// Reads `pem` without a copy; `pem` must outlive the result.
inline BioPointer MakeBio(absl::string_view pem) {
  return BioPointer(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Returns OpenSSL's last error on this thread as text and clears the error queue.
inline std::string TakeOpensslError() {
  const char* const words = ERR_reason_error_string(ERR_peek_last_error());
  const std::string result = words == nullptr ? "unknown error" : words;
  ERR_clear_error();
  return result;
}

}  // namespace torchps
