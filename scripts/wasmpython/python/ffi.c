// What ctypes needs to call C: a small part of libffi, and a loader of libraries
// that finds none.

#include "ffi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#define TYPE(name, ctype, number)                                              \
    ffi_type ffi_type_##name = {sizeof(ctype), _Alignof(ctype),                \
                                FFI_TYPE_##number, NULL}

ffi_type ffi_type_void = {1, 1, FFI_TYPE_VOID, NULL};
TYPE(uint8, uint8_t, UINT8);
TYPE(sint8, int8_t, SINT8);
TYPE(uint16, uint16_t, UINT16);
TYPE(sint16, int16_t, SINT16);
TYPE(uint32, uint32_t, UINT32);
TYPE(sint32, int32_t, SINT32);
TYPE(uint64, uint64_t, UINT64);
TYPE(sint64, int64_t, SINT64);
TYPE(float, float, FLOAT);
TYPE(double, double, DOUBLE);
TYPE(longdouble, long double, LONGDOUBLE);
TYPE(pointer, void *, POINTER);

// most is how many arguments a function has at most.
enum { most = 8 };

ffi_status
ffi_prep_cif(ffi_cif *cif, ffi_abi abi, unsigned count, ffi_type *result,
             ffi_type **arguments)
{
    if (count > most || result->type > FFI_TYPE_POINTER) {
        return FFI_BAD_TYPEDEF;
    }
    for (unsigned i = 0; i < count; i++) {
        if (arguments[i]->type > FFI_TYPE_POINTER) {
            return FFI_BAD_TYPEDEF;
        }
    }
    *cif = (ffi_cif){count, arguments, result};
    return FFI_OK;
}

// widen returns an argument as it is passed.
static uint32_t
widen(const ffi_type *type, const void *value)
{
    switch (type->type) {
    case FFI_TYPE_UINT8:
        return *(const uint8_t *)value;
    case FFI_TYPE_SINT8:
        return (uint32_t)(*(const int8_t *)value);
    case FFI_TYPE_UINT16:
        return *(const uint16_t *)value;
    case FFI_TYPE_SINT16:
        return (uint32_t)(*(const int16_t *)value);
    default:
        return *(const uint32_t *)value;
    }
}

typedef uint32_t u;

// The type of a function in WebAssembly is checked when it is called, so each
// number of arguments is a call of its own.
void
ffi_call(ffi_cif *cif, void (*f)(void), void *result, void **arguments)
{
    u a[most];
    for (unsigned i = 0; i < cif->count; i++) {
        a[i] = widen(cif->arguments[i], arguments[i]);
    }
#define CASES(R, KEEP)                                                         \
    switch (cif->count) {                                                      \
    case 0:                                                                    \
        KEEP((R(*)(void))f)();                                                 \
        break;                                                                 \
    case 1:                                                                    \
        KEEP((R(*)(u))f)(a[0]);                                                \
        break;                                                                 \
    case 2:                                                                    \
        KEEP((R(*)(u, u))f)(a[0], a[1]);                                       \
        break;                                                                 \
    case 3:                                                                    \
        KEEP((R(*)(u, u, u))f)(a[0], a[1], a[2]);                              \
        break;                                                                 \
    case 4:                                                                    \
        KEEP((R(*)(u, u, u, u))f)(a[0], a[1], a[2], a[3]);                     \
        break;                                                                 \
    case 5:                                                                    \
        KEEP((R(*)(u, u, u, u, u))f)(a[0], a[1], a[2], a[3], a[4]);            \
        break;                                                                 \
    case 6:                                                                    \
        KEEP((R(*)(u, u, u, u, u, u))f)(a[0], a[1], a[2], a[3], a[4], a[5]);   \
        break;                                                                 \
    case 7:                                                                    \
        KEEP((R(*)(u, u, u, u, u, u, u))f)                                     \
        (a[0], a[1], a[2], a[3], a[4], a[5], a[6]);                            \
        break;                                                                 \
    case 8:                                                                    \
        KEEP((R(*)(u, u, u, u, u, u, u, u))f)                                  \
        (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);                      \
        break;                                                                 \
    }
    if (cif->result->type == FFI_TYPE_VOID) {
        CASES(void, )
    } else {
        CASES(u, *(ffi_arg *)result =)
    }
}

void *
ffi_closure_alloc(size_t size, void **code)
{
    return NULL;
}

void
ffi_closure_free(void *closure)
{
}

ffi_status
ffi_prep_closure(ffi_closure *closure, ffi_cif *cif,
                 void (*f)(ffi_cif *, void *, void **, void *), void *data)
{
    return FFI_BAD_TYPEDEF;
}

// The program itself can be opened, because importing ctypes does. It has no
// functions that can be found.

static char problem[200];

void *
dlopen(const char *name, int mode)
{
    if (name == NULL) {
        return problem;
    }
    snprintf(problem, sizeof problem,
             "%.100s: this sandbox has no libraries of machine code", name);
    return NULL;
}

void *
dlsym(void *restrict library, const char *restrict name)
{
    snprintf(problem, sizeof problem,
             "%.100s: this sandbox has no foreign functions", name);
    return NULL;
}

int
dlclose(void *library)
{
    return 0;
}

char *
dlerror(void)
{
    return problem;
}
