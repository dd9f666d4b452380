#pragma once

namespace torchps::testing {

// The file data.pkl, in base64, from torch.save(module.state_dict(), file) in Python with torch
// 1.13, for
//
//   module.body = torch.nn.Linear(2, 2, bias=False)
//   module.tied = module.body.weight
//   module.register_buffer("steps", torch.tensor(7))
//
// The archive member data/0 contains the four floats of the weight, data/1 the integer.
inline constexpr char kPythonStateDict[] =
    "gAJjY29sbGVjdGlvbnMKT3JkZXJlZERpY3QKcQApUnEBKFgEAAAAdGllZHECY3RvcmNoLl91dGlscwpfcmVi"
    "dWlsZF90ZW5zb3JfdjIKcQMoKFgHAAAAc3RvcmFnZXEEY3RvcmNoCkZsb2F0U3RvcmFnZQpxBVgBAAAAMHEG"
    "WAMAAABjcHVxB0sEdHEIUUsASwJLAoZxCUsCSwGGcQqJaAApUnELdHEMUnENWAUAAABzdGVwc3EOaAMoKGgE"
    "Y3RvcmNoCkxvbmdTdG9yYWdlCnEPWAEAAAAxcRBoB0sBdHERUUsAKSmJaAApUnESdHETUnEUWAsAAABib2R5"
    "LndlaWdodHEVaAMoKGgEaAVoBmgHSwR0cRZRSwBLAksChnEXSwJLAYZxGIloAClScRl0cRpScRt1fXEcWAkA"
    "AABfbWV0YWRhdGFxHWgAKVJxHihYAAAAAHEffXEgWAcAAAB2ZXJzaW9ucSFLAXNYBAAAAGJvZHlxIn1xI2gh"
    "SwFzdXNiLg==";

// A data.pkl of pickle protocol 4, with tensors w0 and w1.
inline constexpr char kPythonStateDict4[] =
    "gASV8QAAAAAAAACMC2NvbGxlY3Rpb25zlIwLT3JkZXJlZERpY3SUk5QpUpQojAJ3MJSMDHRvcmNoLl91dGlsc5SM"
    "El9yZWJ1aWxkX3RlbnNvcl92MpSTlCgojAdzdG9yYWdllIwFdG9yY2iUjAxGbG9hdFN0b3JhZ2WUk5SMATCUjANj"
    "cHWUSwR0lFFLAEsCSwKGlEsCSwGGlIloAilSlHSUUpSMAncxlGgHKChoCGgLjAExlGgNSwR0lFFLAGgPSwJLAYaU"
    "iWgCKVKUdJRSlHV9lIwJX21ldGFkYXRhlGgCKVKUjAJ3MJR9lIwHdmVyc2lvbpRLAXNzc2Iu";

}  // namespace torchps::testing
