# A guest in one sector. On the first serial port it says "UP" once it has booted and a dot about
# twice a second. It obeys single letters from there:
#   o  powers off             r  resets the machine
#   w  writes sector 1, W sector 128; it answers K, or E if the disk refused
# anything else comes back as it is. The ACPI power button powers it off as well.
# SeaBIOS puts the power management ports of q35 at 0x600.
.code16
.globl _start
.set PM_STATUS, 0x600
.set PM_ENABLE, 0x602
.set PM_CONTROL, 0x604
.set COM1, 0x3f8
.set TICKS, 0x46c
.set BUFFER, 0x8000
_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    sti
    movb %dl, boot_drive
    movw $PM_STATUS, %dx
    movw $0x8100, %ax           # forget a press from before the reset
    outw %ax, %dx
    movw $PM_ENABLE, %dx
    movw $0x0100, %ax           # latch presses from now on
    outw %ax, %dx
    movw $hello, %si
1:  lodsb
    testb %al, %al
    jz beat
    call say
    jmp 1b
beat:
    movb $'.', %al
    call say
    movw TICKS, %bx
    addw $9, %bx
idle:
    movw $PM_STATUS, %dx
    inw %dx, %ax
    testb $1, %ah
    jnz power_off
    movw $COM1 + 5, %dx
    inb %dx, %al
    testb $1, %al
    jnz listen
    hlt
    movw TICKS, %ax
    subw %bx, %ax
    js idle
    jmp beat
listen:
    movw $COM1, %dx
    inb %dx, %al
    cmpb $'o', %al
    je power_off
    cmpb $'r', %al
    je reset
    movw $1, %cx
    cmpb $'w', %al
    je write
    movw $128, %cx
    cmpb $'W', %al
    je write
    call say
    jmp idle
write:
    movw %cx, sector
    movl $0x50554c53, BUFFER
    movb $0x43, %ah
    movb $0, %al
    movw $packet, %si
    movb boot_drive, %dl
    int $0x13
    movb $'K', %al
    jnc 2f
    movb $'E', %al
2:  call say
    jmp idle
reset:
    movw $0xcf9, %dx
    movb $6, %al
    outb %al, %dx
    jmp halt
power_off:
    movw $PM_CONTROL, %dx
    movw $0x2000, %ax
    outw %ax, %dx
halt:
    hlt
    jmp halt
say:
    movw $COM1, %dx
    outb %al, %dx
    ret
packet:
    .byte 16, 0
    .word 1, BUFFER, 0
sector:
    .long 1, 0
boot_drive: .byte 0
hello: .asciz "UP\n"
.org 510
.word 0xaa55
