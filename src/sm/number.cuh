/* Element types on the GPU: turns 16 bytes of elements into accumulators and back. Results equal those of number.h bit
 * for bit, so instructions of the GPU are used only where they give the same bits. */
#ifndef CECL_SM_NUMBER_CUH
#define CECL_SM_NUMBER_CUH

#include "sm/number.h"
#include "sm/reduce.h"

#define INLINE __device__ __forceinline__ /* as DEVICE, for a member function */
#define DEVICE static INLINE

/* Sixteen bytes, as four registers. */
struct vector {
    uint32_t w[4];
};

/* Loads and stores are volatile: if dst is one of the sources, the compiler must not move a load of it past the store.
 * Nothing is read twice, so the loads bypass L1. */
DEVICE vector vector_load(const unsigned char *at)
{
    vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(at));
    return v;
}

DEVICE void vector_store(unsigned char *at, const vector &v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.w[0]), "r"(v.w[1]),
                 "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
}

/* Loads and stores of one element, which are volatile for the reason given above. */
#define SINGLE(type, width, letter, register_type) \
    DEVICE void single_load(const unsigned char *at, type *value) \
    { \
        register_type bits; \
        asm volatile("ld.global." width " %0, [%1];" : "=" letter(bits) : "l"(at)); \
        *value = (type)bits; \
    } \
    DEVICE void single_store(unsigned char *at, type value) \
    { \
        asm volatile("st.global." width " [%0], %1;" ::"l"(at), letter((register_type)value) \
                     : "memory"); \
    }
SINGLE(uint8_t, "u8", "h", uint16_t)
SINGLE(int8_t, "u8", "h", uint16_t)
SINGLE(uint16_t, "u16", "h", uint16_t)
SINGLE(uint32_t, "u32", "r", uint32_t)
SINGLE(int32_t, "u32", "r", uint32_t)
SINGLE(uint64_t, "u64", "l", uint64_t)
SINGLE(int64_t, "u64", "l", uint64_t)
SINGLE(float, "f32", "f", float)
SINGLE(double, "f64", "d", double)

/* ---- floats in words of 32 bits */

DEVICE void f16_pair_widen(uint32_t pair, float *low, float *high)
{
    asm("{.reg .f16 l, h;\n\t mov.b32 {l, h}, %2;\n\t cvt.f32.f16 %0, l;\n\t cvt.f32.f16 %1, h;}"
        : "=f"(*low), "=f"(*high)
        : "r"(pair));
}

DEVICE uint32_t f16_pair_narrow(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE uint32_t bf16_pair_narrow(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* `pair` holds two e4m3 numbers in its lower 16 bits. */
DEVICE void e4m3_pair_widen(uint32_t pair, float *low, float *high)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
    f16_pair_widen(halves, low, high);
#else
    *low = number_from_e4m3((uint8_t)pair);
    *high = number_from_e4m3((uint8_t)(pair >> 8));
#endif
}

DEVICE uint32_t e4m3_pair_narrow(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return number_to_e4m3(low) | (uint32_t)number_to_e4m3(high) << 8;
#endif
}

/* On overflow, from 61440 on, the instruction gives the largest number, but the result must be infinity. */
DEVICE uint32_t e5m2_pair_narrow(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    const uint32_t more = (fabsf(low) >= 61440.0f) | (uint32_t)(fabsf(high) >= 61440.0f) << 8;
    return pair + more; /* 0x7b + 1 is infinity */
#else
    return number_to_e5m2(low) | (uint32_t)number_to_e5m2(high) << 8;
#endif
}

/* ---- element types: `raw` is the type in memory, `acc` the type it is accumulated in */

template <int type> struct element;

template <typename Raw, typename Acc> struct integer_element {
    typedef Raw raw;
    typedef Acc acc;
    static const int per = 16 / sizeof(Raw); /* elements in a vector */

    static INLINE acc widen(raw x)
    {
        return (acc)x;
    }
    static INLINE raw narrow(acc x)
    {
        return (raw)x;
    }
    static INLINE void unpack(const vector &v, acc x[per])
    {
#pragma unroll
        for (int i = 0; i < per; i++)
            if constexpr (sizeof(Raw) == 8)
                x[i] = (acc)((uint64_t)v.w[2 * i + 1] << 32 | v.w[2 * i]);
            else if constexpr (sizeof(Raw) == 4)
                x[i] = (acc)v.w[i];
            else
                x[i] = (acc)(Raw)(v.w[i / 4] >> (i % 4 * 8));
    }
    static INLINE void pack(const acc x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if constexpr (sizeof(Raw) == 8)
                v.w[i] = (uint32_t)((uint64_t)x[i / 2] >> (i % 2 * 32));
            else if constexpr (sizeof(Raw) == 4)
                v.w[i] = (uint32_t)x[i];
            else
                v.w[i] = __byte_perm(
                    __byte_perm((uint32_t)x[4 * i], (uint32_t)x[4 * i + 1], 0x0040),
                    __byte_perm((uint32_t)x[4 * i + 2], (uint32_t)x[4 * i + 3], 0x0040), 0x5410);
    }
};

template <> struct element<ceclInt8> : integer_element<int8_t, int32_t> {
};
template <> struct element<ceclUint8> : integer_element<uint8_t, uint32_t> {
};
template <> struct element<ceclInt32> : integer_element<int32_t, int32_t> {
};
template <> struct element<ceclUint32> : integer_element<uint32_t, uint32_t> {
};
template <> struct element<ceclInt64> : integer_element<int64_t, int64_t> {
};
template <> struct element<ceclUint64> : integer_element<uint64_t, uint64_t> {
};

template <> struct element<ceclFloat32> {
    typedef float raw, acc;
    static const int per = 4;

    static INLINE float widen(float x)
    {
        return x;
    }
    static INLINE float narrow(float x)
    {
        return x != x ? number_from_bits(CECL_NAN_F32) : x;
    }
    static INLINE void unpack(const vector &v, float x[per])
    {
#pragma unroll
        for (int i = 0; i < per; i++)
            x[i] = __uint_as_float(v.w[i]);
    }
    static INLINE void pack(const float x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < per; i++)
            v.w[i] = __float_as_uint(narrow(x[i]));
    }
};

template <> struct element<ceclFloat64> {
    typedef double raw, acc;
    static const int per = 2;

    static INLINE double widen(double x)
    {
        return x;
    }
    static INLINE double narrow(double x)
    {
        return x != x ? __longlong_as_double((long long)CECL_NAN_F64) : x;
    }
    static INLINE void unpack(const vector &v, double x[per])
    {
#pragma unroll
        for (int i = 0; i < per; i++)
            x[i] = __hiloint2double((int)v.w[2 * i + 1], (int)v.w[2 * i]);
    }
    static INLINE void pack(const double x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < per; i++) {
            const double one_nan = narrow(x[i]);
            v.w[2 * i] = (uint32_t)__double2loint(one_nan);
            v.w[2 * i + 1] = (uint32_t)__double2hiint(one_nan);
        }
    }
};

template <> struct element<ceclFloat16> {
    typedef uint16_t raw;
    typedef float acc;
    static const int per = 8;

    static INLINE float widen(raw x)
    {
        float low, high;
        f16_pair_widen(x, &low, &high);
        return low;
    }
    static INLINE raw narrow(float x)
    {
        return (raw)f16_pair_narrow(x, 0);
    }
    static INLINE void unpack(const vector &v, float x[per])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            f16_pair_widen(v.w[i], &x[2 * i], &x[2 * i + 1]);
    }
    static INLINE void pack(const float x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            v.w[i] = f16_pair_narrow(x[2 * i], x[2 * i + 1]);
    }
};

template <> struct element<ceclBfloat16> {
    typedef uint16_t raw;
    typedef float acc;
    static const int per = 8;

    static INLINE float widen(raw x)
    {
        return number_from_bf16(x);
    }
    static INLINE raw narrow(float x)
    {
        return (raw)bf16_pair_narrow(x, 0);
    }
    static INLINE void unpack(const vector &v, float x[per])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(v.w[i] << 16);
            x[2 * i + 1] = __uint_as_float(v.w[i] & 0xffff0000u);
        }
    }
    static INLINE void pack(const float x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            v.w[i] = bf16_pair_narrow(x[2 * i], x[2 * i + 1]);
    }
};

template <> struct element<ceclFloat8e4m3> {
    typedef uint8_t raw;
    typedef float acc;
    static const int per = 16;

    static INLINE float widen(raw x)
    {
        float low, high;
        e4m3_pair_widen(x, &low, &high);
        return low;
    }
    static INLINE raw narrow(float x)
    {
        return (raw)e4m3_pair_narrow(x, 0);
    }
    static INLINE void unpack(const vector &v, float x[per])
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            e4m3_pair_widen(v.w[i / 2] >> (i % 2 * 16), &x[2 * i], &x[2 * i + 1]);
    }
    static INLINE void pack(const float x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            v.w[i] = e4m3_pair_narrow(x[4 * i], x[4 * i + 1]) |
                     e4m3_pair_narrow(x[4 * i + 2], x[4 * i + 3]) << 16;
    }
};

template <> struct element<ceclFloat8e5m2> {
    typedef uint8_t raw;
    typedef float acc;
    static const int per = 16;

    static INLINE float widen(raw x)
    {
        float low, high;
        f16_pair_widen((uint32_t)x << 8, &low, &high);
        return low;
    }
    static INLINE raw narrow(float x)
    {
        return (raw)e5m2_pair_narrow(x, 0);
    }
    static INLINE void unpack(const vector &v, float x[per])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            f16_pair_widen(__byte_perm(v.w[i], 0, 0x1404), &x[4 * i], &x[4 * i + 1]);
            f16_pair_widen(__byte_perm(v.w[i], 0, 0x3424), &x[4 * i + 2], &x[4 * i + 3]);
        }
    }
    static INLINE void pack(const float x[per], vector &v)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            v.w[i] = e5m2_pair_narrow(x[4 * i], x[4 * i + 1]) |
                     e5m2_pair_narrow(x[4 * i + 2], x[4 * i + 3]) << 16;
    }
};

#endif
