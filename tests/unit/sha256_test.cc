// SHA-256 against the examples of FIPS 180-4 and NIST's byte-oriented test vectors, HMAC-SHA256 against RFC 4231.
#include "bootstrap/sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace moeway::bootstrap {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::string hash(std::string_view message) {
  Sha256 sha;
  sha.add(message);
  return hex(sha.finish());
}

std::string code(std::string_view key, std::string_view message) {
  HmacSha256 hmac(key);
  hmac.add(message);
  return hex(hmac.finish());
}

TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                 "mnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, GivesTheSameHoweverTheMessageIsCut) {
  std::string message;
  for (int i = 0; i < 300; ++i) message += static_cast<char>(i);
  for (size_t length = 0; length <= message.size(); ++length) {
    const std::string_view whole(message.data(), length);
    Sha256 sha;
    for (size_t at = 0; at < length; at += 1 + at % 67) sha.add(whole.substr(at, std::min(1 + at % 67, length - at)));
    EXPECT_EQ(hex(sha.finish()), hash(whole)) << length << " bytes";
  }
}

TEST(HmacSha256, GivesTheVectorsOfRfc4231) {
  EXPECT_EQ(code(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(code("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(code(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char byte = 1; byte <= 25; ++byte) counting += byte;
  EXPECT_EQ(code(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(code(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(code(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(code(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
                 "to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(EqualInConstantTime, SeesADifferenceInAnyByte) {
  const Digest zeros{};
  EXPECT_TRUE(equal_in_constant_time(zeros, zeros));
  for (size_t i = 0; i < zeros.size(); ++i) {
    Digest other = zeros;
    other[i] = 1;
    EXPECT_FALSE(equal_in_constant_time(zeros, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace moeway::bootstrap
