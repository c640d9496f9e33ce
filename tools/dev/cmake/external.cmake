# The third-party packages, found once (tools/packages.txt lists what provides them).
include(GoogleTest)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(RocksDB CONFIG REQUIRED)       # RocksDB::rocksdb-shared
find_package(cppzmq REQUIRED)               # cppzmq
find_package(FlatBuffers CONFIG REQUIRED)   # flatbuffers::flatbuffers, flatbuffers::flatc
find_package(Boost 1.74 REQUIRED COMPONENTS context)  # Boost::headers; Boost::context in tests
find_package(nlohmann_json REQUIRED)        # nlohmann_json::nlohmann_json
find_package(CLI11 REQUIRED)                # CLI11::CLI11
find_package(spdlog REQUIRED)               # spdlog::spdlog
find_package(ZLIB REQUIRED)                 # ZLIB::ZLIB
find_package(LibLZMA REQUIRED)              # LibLZMA::LibLZMA
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)        # PkgConfig::uring
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)          # PkgConfig::isal
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)     # PkgConfig::openblas
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)  # PkgConfig::tomlplusplus
# Not `zstd`: RocksDB looks for a package of that name, in variables of the same names.
pkg_check_modules(zstandard REQUIRED IMPORTED_TARGET libzstd)     # PkgConfig::zstandard
