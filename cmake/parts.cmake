# lvn_part(NAME LINK ...): the folder's *.c and *.cc become the static library lvn_NAME, and every
# tests/unit/NAME/*_test.c becomes a cmocka program linked with it and registered with ctest.
function(lvn_part name)
    cmake_parse_arguments(PART "" "" "LINK;PRIVATE" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
    if(NOT sources)
        return()
    endif()
    add_library(lvn_${name} STATIC ${sources})
    target_include_directories(lvn_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(lvn_${name} PUBLIC ${PART_LINK} PRIVATE lvn_flags ${PART_PRIVATE})
    if(LVN_TESTS)
        file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${name}/*_test.c)
        foreach(source ${tests})
            get_filename_component(test ${source} NAME_WE)
            add_executable(${name}_${test} ${source})
            target_link_libraries(${name}_${test} PRIVATE lvn_${name} lvn_flags PkgConfig::CMOCKA ${PART_PRIVATE})
            target_compile_definitions(${name}_${test} PRIVATE
                LVN_SOURCE_DIR="${CMAKE_SOURCE_DIR}" LVN_BINARY_DIR="${CMAKE_BINARY_DIR}")
            set_target_properties(${name}_${test} PROPERTIES
                RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
            add_test(NAME ${name}_${test} COMMAND ${name}_${test})
            # ggml's threads must not spin on shared cores (see docs/decisions/0006)
            set_tests_properties(${name}_${test} PROPERTIES TIMEOUT 900 LABELS unit
                ENVIRONMENT "OMP_WAIT_POLICY=passive;GOMP_SPINCOUNT=200")
        endforeach()
    endif()
endfunction()
