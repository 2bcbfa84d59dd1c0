// Which half of an operation a launch does.
#pragma once

namespace moeway::launch {

enum class Half { kSend, kRecv, kBoth };

}  // namespace moeway::launch
