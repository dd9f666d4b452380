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

}  // namespace torchps::testing
